#!/bin/bash
# One session on a machine with one or two GPUs, all in the background of its first call: teacher speech, codec, codes,
# language model. Everything lands below DATA (argument 1); SECONDS_LEFT (argument 2) is the time until the very end.
# Needs in DATA: teacher/{kokoro-int8.onnx.xz.0,kokoro-int8.onnx.xz.1,vocab.json,*.bin}, phonemes/*.tsv, texts/*.tsv, tok/.
# Every stage is resumable by hand with the commands below; times are shares of the session.
set -u
data=$1 left=$2 here=$(cd "$(dirname "$0")" && pwd)
cd "$data" && mkdir -p speech codes codec decoder lm log
export PYTHONUNBUFFERED=1 OMP_NUM_THREADS=1
start=$(date +%s) end=$(($(date +%s) + left))
codec_end=$((start + left * 58 / 100))
gpus=$(nvidia-smi -L | wc -l) cores=$(env -u OMP_NUM_THREADS nproc) last=$(($(nvidia-smi -L | wc -l) - 1))
stamp() { echo "$(($(date +%s) - start)) s: $*"; }
run() { local name=$1; shift; python3 "$here/$@" > "log/$name.txt" 2>&1; stamp "$name ended with $?"; }

cat teacher/kokoro-int8.onnx.xz.0 teacher/kokoro-int8.onnx.xz.1 > teacher/kokoro-int8.onnx.xz
run dequantize dequantize.py teacher/kokoro-int8.onnx.xz teacher/kokoro-f32.onnx &
dequantizing=$!

# Many processes with small kernels share a GPU about twice as well through the multi-process service.
mkdir -p mps
service=(env CUDA_MPS_PIPE_DIRECTORY="$data/mps" CUDA_MPS_LOG_DIRECTORY="$data/mps")
"${service[@]}" "$(command -v nvidia-cuda-mps-control || echo /usr/local/nvidia/bin/nvidia-cuda-mps-control)" -d
probe="import torch; print([torch.ones(2, device=f'cuda:{k}').sum().item() for k in range($gpus)])"
"${service[@]}" timeout 40 python3 -c "$probe" || service=(env)
stamp "teacher runs as: ${service[*]} python3"
wait $dequantizing

speak() { # name, list, gpu, processes, shards, seconds
  "${service[@]}" python3 "$here/speak.py" --model teacher/kokoro-f32.onnx --vocab teacher/vocab.json --voices teacher \
    --phonemes "phonemes/$2.tsv" --out speech --gpu "$3" --procs "$4" --shards "$5" --seconds "$6" > "log/$1.txt" 2>&1
  stamp "$1 ended with $?: $(tail -1 "log/$1.txt")"
}
codec_shards=64 lm_shards=480 # of 256 lines, about 2.2 s each
speak speech.codec train 0 $((cores * 7 / 16)) 0:$codec_shards 300 &
first=$!
(
  speak speech.valid valid "$last" 1 0:1 300
  speak speech.test test "$last" 1 0:1 300
) &
[ "$gpus" = 1 ] && wait $first
lm_seconds=$((codec_end - $(date +%s) - 5))
[ "$gpus" = 1 ] && lm_seconds=240
speak speech.lm train "$last" $((cores * 5 / 8)) $codec_shards:$lm_shards $lm_seconds &
lm_speech=$!
[ "$gpus" = 1 ] && wait $lm_speech

export CUDA_VISIBLE_DEVICES=0
run codec codec_train.py --speech speech --vocab teacher/vocab.json --out codec --wait-hours 2 --until $codec_end
wait $lm_speech
stamp "speech: $(ls speech/*.npz | wc -l) shards"

jobs_=()
for k in 0 1 2 3; do
  CUDA_VISIBLE_DEVICES=$((k % gpus)) run encode.$k codec_encode.py --codec codec/codec.pt --speech speech --vocab teacher/vocab.json --out codes --group 32 --part $k/4 &
  jobs_+=($!)
done
wait "${jobs_[@]}"
run gates codec_gates.py --codes codes
touch codes/done

train_end=$((end - 45))
run decoder codec_train.py --speech speech --vocab teacher/vocab.json --out decoder --resume codec/codec.pt --decoder-only --gan-from 0 --rate 3e-4 --wait-hours 8 --until $train_end &
decoder_run=$!
CUDA_VISIBLE_DEVICES=$last run lm lm_train.py --codes codes --texts texts/train.tsv --valid-codes codes/valid.00000.npz --valid-texts texts/valid.tsv --tok tok --out lm --rate 1.5e-3 --guide 0.5 --until $train_end
wait $decoder_run
for layout in whole streamed; do
  CUDA_VISIBLE_DEVICES=$last run sample.$layout lm_sample.py --lm lm/best.pt --codec codec/codec.pt --decoder decoder/codec.pt --tok tok --texts texts/test.tsv --stride 3 --layout $layout --out lm/$layout.npz
done
touch finished
