#!/bin/sh
# Builds Horovod from its source package for the torch, and the TensorFlow, that an interpreter has, and installs it there.
#
#   deploy/build-horovod.sh [PYTHON]        PYTHON: .venv/bin/python by default
#
# Needs a C++17 compiler and a package index (cmake comes from there where the system has none); takes minutes. Nothing but Horovod
# and what it imports is added to the interpreter's packages: it is built in a directory of its own.
# TENUTO_HOROVOD_WITHOUT=tensorflow (or pytorch) leaves one out.
set -eu

version=0.28.1
python=${1:-.venv/bin/python}
without=${TENUTO_HOROVOD_WITHOUT:-}

fail() {
  echo "build-horovod: $1" >&2
  exit 1
}

test -x "$python" || python=$(command -v "$python") || fail "there is no Python at $1"
command -v c++ > /dev/null || fail "there is no C++ compiler; install one with the system's package manager (Debian: apt install g++)"
compiler=$(command -v c++)

has() {
  test "$without" != "$2" && "$python" -c "import importlib.util, sys; sys.exit(importlib.util.find_spec('$1') is None)"
}

if has torch pytorch; then export HOROVOD_WITH_PYTORCH=1; torch=1; else export HOROVOD_WITHOUT_PYTORCH=1; torch=0; fi
if has tensorflow tensorflow; then export HOROVOD_WITH_TENSORFLOW=1; tensorflow=1; else export HOROVOD_WITHOUT_TENSORFLOW=1; tensorflow=0; fi
test $((torch + tensorflow)) -gt 0 || fail "$python has neither torch nor TensorFlow; install the one that you train with first"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Horovod asks for C++14, in which the headers of torch 2.x and TensorFlow 2.x do not compile. One of its files was written for a
# later interface of TensorFlow than 2.18's successors have: it compiles as for a version whose interface it knows.
cat > "$work/c++" <<END
#!/bin/sh
for argument in "\$@"; do
  case "\$argument" in
    *xla_mpi_ops.cc) exec "$compiler" "\$@" -std=c++17 -UTENSORFLOW_VERSION -DTENSORFLOW_VERSION=2005000000 ;;
  esac
done
exec "$compiler" "\$@" -std=c++17
END
chmod +x "$work/c++"

# An environment that sees the interpreter's packages, and has the older setuptools that Horovod's setup.py needs.
"$python" -m venv "$work/venv"
"$python" -c "import site; print('import site;', *(f'site.addsitedir({path!r});' for path in site.getsitepackages()))" \
  > "$("$work/venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/zz_packages.pth"
"$work/venv/bin/python" -m pip install -q --disable-pip-version-check 'setuptools<81' wheel
if ! command -v cmake > /dev/null; then
  "$work/venv/bin/python" -m pip install -q --disable-pip-version-check cmake
  export PATH="$work/venv/bin:$PATH"
fi

export CXX="$work/c++" HOROVOD_WITHOUT_MPI=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MXNET=1 CMAKE_POLICY_VERSION_MINIMUM=3.5
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}"
echo "building Horovod $version for $("$python" -V) (torch: $torch, TensorFlow: $tensorflow); this takes minutes"
if ! "$work/venv/bin/python" -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation --no-binary horovod \
  --no-cache-dir --wheel-dir "$work/wheels" "horovod==$version" > "$work/log" 2>&1; then
  tail -n 60 "$work/log" >&2
  fail "Horovod could not be built; the compiler's words are above"
fi
"$python" -m pip install -q --disable-pip-version-check --no-deps --force-reinstall "$work"/wheels/horovod-*.whl
"$python" -m pip install -q --disable-pip-version-check cloudpickle psutil pyyaml packaging cffi
test "$torch" = 0 || "$python" -c 'import horovod.torch as hvd; assert hvd.gloo_built(); print("horovod.torch is ready")'
test "$tensorflow" = 0 || TF_CPP_MIN_LOG_LEVEL=3 "$python" -c 'import horovod.tensorflow as hvd; assert hvd.gloo_built(); print("horovod.tensorflow is ready")'
