#!/bin/bash
# Stages of one session on a machine with one or more GPUs, meant for the background of its first call:
#   setsid nohup ./gpu_session.sh DATA SECONDS codec > DATA/session.txt 2>&1 < /dev/null &
#   setsid nohup ./gpu_session.sh DATA SECONDS lm SPEAK_SECONDS FIRST_SHARD DECODER_AT > DATA/session.txt 2>&1 < /dev/null &
# SECONDS is the time until everything has ended. Plans:
#   codec  teacher speech on all GPUs, codec on GPU 0 (goes on from DATA/codec/codec.pt), then all speech to codes
#   lm     language model on the last GPU from DATA/codes (goes on from DATA/lm/lm.pt). Once DATA/teacher/ready exists, the teacher
#          speaks the shards from FIRST_SHARD on for SPEAK_SECONDS on GPU 0; DATA/codec/codec.pt turns them into codes as they
#          come, and the training takes them in. At second DECODER_AT the model of that moment chooses codes for the new speech,
#          and the decoder (from DATA/codec/codec.pt) learns to speak those, beside the language model's further training.
#          lm/control.json may move the end (lm_train.py), and a file `end` (seconds since 1970) that of the decoder.
# Needs in DATA: teacher/{kokoro-int8.onnx.xz or its halves .0 and .1, vocab.json, *.bin}, phonemes/, texts/, tok/; see README.md.
# DATA/finished appears at the end. Logs: DATA/log. SMOKE=1: a few lines and steps on a CPU.
set -u
SMOKE=${SMOKE:-}
data=$1 left=$2 plan=$3 here=$(cd "$(dirname "$0")" && pwd)
cd "$data" && mkdir -p speech codes codec decoder lm log mps
start=$(date +%s)
end=$((start + left)) gpus=$(nvidia-smi -L | wc -l) cores=$(nproc) # before OMP_NUM_THREADS, which nproc obeys
last=$((gpus - 1)) smoke=(${SMOKE:+--smoke}) device=(${SMOKE:+--device cpu})
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1 RAYON_NUM_THREADS=2
service=(env)

stamp() { echo "$(($(date +%s) - start)) s: $*"; }

run() { # name, gpu, script, arguments
  local name=$1 gpu=$2 script=$3
  shift 3
  CUDA_VISIBLE_DEVICES=$gpu python3 "$here/$script" "$@" > "log/$name.txt" 2>&1
  stamp "$name ended with $?: $(tail -1 "log/$name.txt" | cut -c1-200)"
}

share_gpus() {
  # Many processes with small kernels share a GPU better through the multi-process service (one and a half times the speech).
  service=(env CUDA_MPS_PIPE_DIRECTORY="$data/mps" CUDA_MPS_LOG_DIRECTORY="$data/mps")
  "${service[@]}" "$(command -v nvidia-cuda-mps-control || echo /usr/local/nvidia/bin/nvidia-cuda-mps-control)" -d
  local probe="import torch; [torch.ones(2, device=f'cuda:{k}').sum().item() for k in range($gpus)]"
  "${service[@]}" timeout 40 python3 -c "$probe" || service=(env)
  stamp "processes run as: ${service[*]} python3"
}

prepare_teacher() {
  [ -e teacher/kokoro-int8.onnx.xz ] || cat teacher/kokoro-int8.onnx.xz.[01] > teacher/kokoro-int8.onnx.xz
  run dequantize "" dequantize.py teacher/kokoro-int8.onnx.xz teacher/kokoro-f32.onnx
}

speak() { # name, list, gpu, processes, shards, seconds
  "${service[@]}" python3 "$here/speak.py" --model teacher/kokoro-f32.onnx --vocab teacher/vocab.json --voices teacher \
    --phonemes "phonemes/$2.tsv" --out speech --gpu "$3" --procs "$4" --shards "$5" --seconds "$6" "${smoke[@]}" > "log/$1.txt" 2>&1
  stamp "$1 ended with $?: $(tail -1 "log/$1.txt")"
}

codec_plan() {
  local codec_end=$((end - 60)) resume=()
  [ -e codec/codec.pt ] && resume=(--resume codec/codec.pt)
  share_gpus
  prepare_teacher
  speak speech.codec train 0 $((cores * 7 / 16)) 0:64 300 &
  local first=$! more
  (
    speak speech.valid valid "$last" 1 0:1 300
    speak speech.test test "$last" 1 0:1 300
  ) &
  [ "$gpus" = 1 ] && wait $first
  local seconds=$((codec_end - $(date +%s) - 5))
  [ "$gpus" = 1 ] && seconds=$((seconds / 3)) # one GPU: the codec waits
  speak speech.lm train "$last" $((cores * 5 / 8)) 64:480 $seconds &
  more=$!
  [ "$gpus" = 1 ] && wait $more
  run codec 0 codec_train.py --speech speech --vocab teacher/vocab.json --out codec --wait-hours 0.3 --until $codec_end "${resume[@]}"
  wait $more
  local encoders=() k
  for k in 0 1 2 3; do
    run encode.$k $((k % gpus)) codec_encode.py --codec codec/codec.pt --speech speech --vocab teacher/vocab.json --out codes --group 32 --part $k/4 &
    encoders+=($!)
  done
  wait "${encoders[@]}"
  run gates "" codec_gates.py --codes codes
}

until_file() { # path, or this script's end
  until [ -e "$1" ]; do
    sleep 1
    [ "$(date +%s)" -lt $end ] || exit
  done
}

tune_decoder() { # second to begin at, first shard
  while [ "$(date +%s)" -lt $((start + $1)) ]; do sleep 1; done
  until_file lm/ema.pt
  CUDA_VISIBLE_DEVICES=0 "${service[@]}" python3 "$here/lm_predict.py" --lm lm/ema.pt --codes codes --texts texts/train.tsv --tok tok --out predicted \
    --first-shard "$2" --hours $((SMOKE ? 0 : 14)) "${device[@]}" ${SMOKE:+--share 0.2} > log/predict.txt 2>&1
  stamp "predict ended with $?: $(tail -1 log/predict.txt)"
  local until=$end tries=0
  [ -e end ] && until=$(cat end)
  while [ ! -e decoder/stop ] && [ "$(date +%s)" -lt $((until - 20)) ] && [ $((tries++)) -lt 4 ]; do
    local from=codec/codec.pt
    [ -e decoder/codec.pt ] && from=decoder/codec.pt
    CUDA_VISIBLE_DEVICES=0 "${service[@]}" python3 "$here/codec_train.py" --speech speech --vocab teacher/vocab.json --out decoder --resume $from --decoder-only \
      --predicted predicted --gan-from 0 --rate 4e-4 --batch 16 --frames 32 --wait-hours 0 --hours 16 --until "$until" ${DECODER_OPTIONS:-} > log/decoder.txt 2>&1
    stamp "decoder ended with $?: $(tail -1 log/decoder.txt | cut -c1-200)"
  done
}

lm_plan() { # seconds of speaking, first shard, second at which the decoder begins
  share_gpus
  (
    until_file teacher/ready
    [ -e teacher/kokoro-f32.onnx ] || prepare_teacher
    # The training goes first where kernels wait for each other.
    service+=(CUDA_MPS_CLIENT_PRIORITY=1)
    CUDA_VISIBLE_DEVICES=0 "${service[@]}" python3 "$here/codec_encode.py" --codec codec/codec.pt --speech speech --vocab teacher/vocab.json \
      --out codes --group $((SMOKE ? 1 : 16)) --follow "${device[@]}" > log/encode.txt 2>&1 &
    speak speech.lm train 0 $((cores * 3 / 4)) "$2:$((SMOKE ? $2 + 2 : 1000000))" "$1"
    touch speech/done
    wait
    stamp "codes: $(tail -1 log/encode.txt)"
    service=("${service[@]:0:3}")
    tune_decoder "$3" "$2"
  ) &
  local tries=0
  until [ -e lm/finished ] || [ $((tries++)) = 5 ]; do # a failed process of the service takes the others with it: go on from what is saved
    local resume=()
    [ -e lm/lm.pt ] && resume=(--resume lm/lm.pt)
    CUDA_VISIBLE_DEVICES=$last "${service[@]}" python3 "$here/lm_train.py" --codes codes --texts texts/train.tsv --valid-codes codes/valid.00000.npz \
      --valid-texts texts/valid.tsv --tok tok --out lm --room 220 --begin $start --until $end "${resume[@]}" "${smoke[@]}" ${LM_OPTIONS:-} >> log/lm.txt 2>&1
    sleep 1
    stamp "lm ended with $?: $(tail -1 log/lm.txt | cut -c1-200)"
  done
  touch speech/done
  wait
}

case $plan in
  codec) codec_plan ;;
  lm) lm_plan "$4" "$5" "$6" ;;
  *) echo "unknown plan $plan" && exit 2 ;;
esac
touch finished
