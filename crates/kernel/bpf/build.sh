#!/bin/sh
# Compiles the program; the object file is part of the repository, so that building tradewind needs no clang. Debian's
# clang 14 makes the same bytes everywhere: without paths, and of all that -g makes only the types (BTF) that the kernel
# wants for its functions are left. The test `object` compares.
#   build.sh [OUTPUT]
set -eu
cd "$(dirname "$0")"
output=${1:-tradewind.bpf.o}
include=/usr/include/$(uname -m)-linux-gnu
"${CLANG:-clang-14}" -target bpf -mcpu=v3 -O2 -g -Wall -Wextra -Werror -Wno-unused-function -ffile-prefix-map="$PWD"=. \
	-I"$include" -c tradewind.bpf.c -o "$output"
"${LLVM_STRIP:-llvm-strip-14}" --strip-debug "$output"
