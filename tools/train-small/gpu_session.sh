#!/bin/bash
# Stages of one session on a machine with one or two GPUs, meant for the background of its first call:
#   setsid nohup ./gpu_session.sh DATA SECONDS codec > DATA/session.txt 2>&1 < /dev/null &
# SECONDS is the time until everything has ended. Plans:
#   codec  teacher speech on all GPUs, codec on GPU 0 (goes on from DATA/codec/codec.pt), then all speech to codes
#   lm     language model on the last GPU from DATA/codes (goes on from DATA/lm/lm.pt); with two GPUs also ten hours of speech
#          and the decoder alone on GPU 0 (from DATA/decoder/codec.pt or DATA/codec/codec.pt); then samples of the test sentences
# Needs in DATA: teacher/{kokoro-int8.onnx.xz or its halves .0 and .1, vocab.json, *.bin}, phonemes/, texts/, tok/; see README.md.
# DATA/finished appears at the end. Logs: DATA/log.
set -u
data=$1 left=$2 plan=$3 here=$(cd "$(dirname "$0")" && pwd)
cd "$data" && mkdir -p speech codes codec decoder lm log mps
start=$(date +%s)
end=$((start + left)) gpus=$(nvidia-smi -L | wc -l) cores=$(nproc) # before OMP_NUM_THREADS, which nproc obeys
last=$((gpus - 1))
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1

stamp() { echo "$(($(date +%s) - start)) s: $*"; }

run() { # name, gpu, script, arguments
  local name=$1 gpu=$2 script=$3
  shift 3
  CUDA_VISIBLE_DEVICES=$gpu python3 "$here/$script" "$@" > "log/$name.txt" 2>&1
  stamp "$name ended with $?: $(tail -1 "log/$name.txt" | cut -c1-200)"
}

prepare_teacher() {
  [ -e teacher/kokoro-int8.onnx.xz ] || cat teacher/kokoro-int8.onnx.xz.[01] > teacher/kokoro-int8.onnx.xz
  run dequantize "" dequantize.py teacher/kokoro-int8.onnx.xz teacher/kokoro-f32.onnx &
  local dequantizing=$!
  # Many processes with small kernels share a GPU better through the multi-process service (one and a half times the speech).
  service=(env CUDA_MPS_PIPE_DIRECTORY="$data/mps" CUDA_MPS_LOG_DIRECTORY="$data/mps")
  "${service[@]}" "$(command -v nvidia-cuda-mps-control || echo /usr/local/nvidia/bin/nvidia-cuda-mps-control)" -d
  local probe="import torch; [torch.ones(2, device=f'cuda:{k}').sum().item() for k in range($gpus)]"
  "${service[@]}" timeout 40 python3 -c "$probe" || service=(env)
  stamp "teacher runs as: ${service[*]} python3"
  wait $dequantizing
}

speak() { # name, list, gpu, processes, shards, seconds
  "${service[@]}" python3 "$here/speak.py" --model teacher/kokoro-f32.onnx --vocab teacher/vocab.json --voices teacher \
    --phonemes "phonemes/$2.tsv" --out speech --gpu "$3" --procs "$4" --shards "$5" --seconds "$6" > "log/$1.txt" 2>&1
  stamp "$1 ended with $?: $(tail -1 "log/$1.txt")"
}

codec_plan() {
  local codec_end=$((end - 60)) resume=()
  [ -e codec/codec.pt ] && resume=(--resume codec/codec.pt)
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

lm_plan() {
  local train_end=$((end - 45)) resume=() from=codec/codec.pt other=""
  if [ "$gpus" -gt 1 ]; then
    [ -e decoder/codec.pt ] && from=decoder/codec.pt
    (
      prepare_teacher
      speak speech.codec train 0 $((cores * 7 / 16)) 0:64 200
      run decoder 0 codec_train.py --speech speech --vocab teacher/vocab.json --out decoder --resume $from --decoder-only --gan-from 0 --rate 4e-4 --until $train_end
    ) &
    other=$!
  fi
  [ -e lm/lm.pt ] && resume=(--resume lm/lm.pt)
  run lm "$last" lm_train.py --codes codes --texts texts/train.tsv --valid-codes codes/valid.00000.npz --valid-texts texts/valid.tsv \
    --tok tok --out lm --rate 1.5e-3 --guide 0.5 --noise 0.3 --validate-every 1000 --until $train_end "${resume[@]}"
  [ -n "$other" ] && wait "$other"
  [ -e decoder/codec.pt ] && from=decoder/codec.pt
  local layout
  for layout in whole streamed; do
    run sample.$layout "$last" lm_sample.py --lm lm/best.pt --codec $from --tok tok --texts texts/test.tsv --stride 3 --layout $layout --out lm/$layout.npz
  done
}

case $plan in
  codec) codec_plan ;;
  lm) lm_plan ;;
  *) echo "unknown plan $plan" && exit 2 ;;
esac
touch finished
