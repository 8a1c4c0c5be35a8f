# bash completion of skald(1). Options come from --help itself, so they cannot fall behind.
_skald() {
  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}
  local command=() word help
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case $word in
      say | prompt | verify | codec | voice | bench | compare | doctor | serve) [ ${#command[@]} -eq 0 ] && command+=("$word") ;;
      encode | decode) [ "${command[*]}" = codec ] && command+=("$word") ;;
      add | design | list | show | remove | rename | export | import) [ "${command[*]}" = voice ] && command+=("$word") ;;
    esac
  done
  help=$("${COMP_WORDS[0]}" "${command[@]}" --help 2>/dev/null) || return
  local choices=
  [[ $previous == --* ]] && choices=$(sed -nE "s/^  (-[a-z],)?$previous ([a-z]+(\|[a-z]+)+)( .*|)$/\2/p" <<<"$help")
  if [ -n "$choices" ]; then
    COMPREPLY=($(compgen -W "${choices//|/ }" -- "$current"))
  elif [[ $current == -* ]]; then
    COMPREPLY=($(compgen -W "$(grep -oE -- '^  (-[a-z],)?--[a-z-]+' <<<"$help" | grep -oE -- '--[a-z-]+')" -- "$current"))
  elif [ ${#command[@]} -eq 0 ] || [ "${command[*]}" = codec ] || [ "${command[*]}" = voice ]; then
    COMPREPLY=($(compgen -W "$(sed -n '/^Subcommands:/,/^$/s/^  \([a-z]*\) .*/\1/p' <<<"$help")" -- "$current"))
  else
    compopt -o default
  fi
}
complete -F _skald skald
