# Sourced by the run scripts: installs what is missing on Debian and Ubuntu, and nothing else.

# have_header <header>: some C++ compiler finds it.
have_header() {
  local compiler
  for compiler in "${CXX:-c++}" g++ clang++; do
    if command -v "$compiler" >/dev/null &&
      printf '#include <%s>\n' "$1" | "$compiler" -std=c++20 -fsyntax-only -x c++ - 2>/dev/null; then
      return 0
    fi
  done
  return 1
}

# install_packages <package>...
install_packages() {
  [ $# -gt 0 ] || return 0
  if ! command -v apt-get >/dev/null; then
    echo "missing, and no apt-get to install it with: $*" >&2
    return 1
  fi
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    if ! command -v sudo >/dev/null; then
      echo "missing, and installing needs root: apt-get install $*" >&2
      return 1
    fi
    as_root=(sudo)
  fi
  local log
  log=$(mktemp)
  echo "installing $*" >&2
  if ! { "${as_root[@]}" apt-get update -qq &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
      --no-install-recommends "$@"; } >"$log" 2>&1 </dev/null; then
    cat "$log" >&2
    rm -f "$log"
    return 1
  fi
  rm -f "$log"
}
