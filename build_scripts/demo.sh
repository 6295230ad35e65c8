#!/usr/bin/env bash
# The whole of specret in one go: a datastore from Python's standard library, an answer decoded
# with it, and a table against plain decoding, transformers' prompt lookup and REST.
# Usage: build_scripts/demo.sh path/to/specret STORE
set -euo pipefail
specret=$1
store=$2

say() { printf '\n== %s\n' "$*"; }

say "1. A datastore: the code of this Python, and the model's states over a part of it"
"$specret" build-index --corpus code --dense-tokens 80000 --out "$store"

say "2. Decoding with it, and where each accepted guess came from"
"$specret" decode --drafter hybrid --store "$store" --max-new-tokens 96 --show-sources \
  --prompt "Write a Python function that merges two sorted lists into one sorted list."

# the confidences of hybrid were fitted on the first 60 problems
say "3. Ten HumanEval problems: every method on each, held against plain decoding"
"$specret" eval --drafter hybrid --compare rest,suffix,dresd,prompt --store "$store" \
  --prompts humaneval --skip 60 --limit 10 --max-new-tokens 96
