#!/usr/bin/env bash
# The whole of specret in one go: a datastore from Python's standard library, one of the model's
# own answers, an answer decoded with both, and tables against plain decoding, transformers' prompt
# lookup and REST.
# Usage: build_scripts/demo.sh path/to/specret STORE
set -euo pipefail
specret=$1
store=$2
own=$store-answers

say() { printf '\n== %s\n' "$*"; }

say "1. A datastore: the code of this Python, and the model's states over a part of it"
"$specret" build-index --corpus code --dense-tokens 30000 --out "$store"

say "2. Another: the model's own answers to signatures and docstrings of that code"
"$specret" build-index --corpus code --generate --generate-tokens 20000 --out "$own"

say "3. Decoding with both, and where each accepted guess came from"
"$specret" decode --drafter hybrid --store "$own" --store "$store" --max-new-tokens 96 \
  --show-sources --prompt "Write a Python function that merges two sorted lists into one sorted list."

# the confidences of hybrid were fitted on the first 60 problems
problems=(--prompts humaneval --skip 60 --limit 8 --max-new-tokens 96)

say "4. Eight HumanEval problems: every method on each, held against plain decoding"
"$specret" eval --drafter hybrid --compare rest,suffix,dresd,prompt --store "$store" "${problems[@]}"

say "5. The same problems with the model's own answers as the store"
"$specret" eval --drafter hybrid --compare suffix,dresd --no-baselines --store "$own" "${problems[@]}"
