#!/bin/sh
# Makes the Python environment of the reference exporter: the official package, in float32 on the CPU.
# usage: setup.sh VENV [PYTHON]
set -eu

venv=${1:?usage: setup.sh VENV [PYTHON]}
python=${2:-python3}

"$python" -m venv "$venv"
install() {
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"
}
install torch==2.13.0
install transformers==4.57.3 accelerate==1.12.0 safetensors numpy librosa soundfile einops
# Its own dependency list pins web and audio packages that the 12 Hz models never use.
install --no-deps qwen-tts==0.1.1

# The package imports its 25 Hz tokenizer unconditionally, and with it three modules that nothing here calls.
site=$("$venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
for module in sox onnxruntime torchaudio torchaudio/compliance torchaudio/compliance/kaldi; do
  if [ ! -e "$site/$module/__init__.py" ] && [ ! -e "$site/$module.py" ]; then
    mkdir -p "$site/$module"
    echo '# empty stand-in: only imported' > "$site/$module/__init__.py"
  fi
done

HF_HUB_OFFLINE=1 "$venv/bin/python" - <<'PY'
import torch
import transformers
import qwen_tts  # noqa: F401

assert transformers.__version__ == "4.57.3", transformers.__version__
print("ready: torch", torch.__version__, "transformers", transformers.__version__)
PY
