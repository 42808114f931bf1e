#!/bin/sh
# Builds Kubernetes' API server, scheduler, controller manager, proxy and kubelet from Debian's source package, once, for tests against the
# real thing (`make kubernetes-real`).
#
#   deploy/build-kubernetes.sh [DIRECTORY]        DIRECTORY: ~/.cache/tenuto by default; gets kubernetes-VERSION/bin, 450 MB
#
# Needs apt with Debian's mirrors, and root if packages are missing. Takes 10 to 25 minutes on two cores and 5 GB while it builds. May
# be killed at any time: the next run goes on, and kubernetes-VERSION is there only when it is whole.
set -eu

cache=${1:-$HOME/.cache/tenuto}
programs="kube-apiserver kube-scheduler kube-controller-manager kube-proxy kubelet"
# What builds it, and what a node of it needs beside it.
packages="golang-go rsync jq gcc libc6-dev make dpkg-dev etcd-server containerd runc containernetworking-plugins iptables iproute2 openssl"

fail() {
  echo "build-kubernetes: $1" >&2
  exit 1
}

command -v apt-get > /dev/null || fail "there is no apt-get here; only Debian's source package of Kubernetes is known to build"
mkdir -p "$cache"
exec 9> "$cache/kubernetes.lock"
flock 9 # another run may be building: then this one finds what it made

missing=""
for package in $packages; do
  [ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null)" = installed ] || missing="$missing $package"
done
if [ -n "$missing" ]; then
  [ "$(id -u)" -eq 0 ] || fail "packages are missing, and only root may install them: apt-get install$missing"
  # Nothing that a package brings is started: tests start their own.
  DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends $missing
fi

for built in "$cache"/kubernetes-*/bin/kubelet; do
  if [ -x "$built" ]; then
    echo "Kubernetes is built: $(dirname "$built")"
    exit 0
  fi
done

# The machine's own mirrors, asked for sources; in lists of our own, so that those of the machine stay as they are.
work="$cache/kubernetes.partial"
mkdir -p "$work/sources" "$work/lists/partial" "$work/download"
for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
  test -f "$file" && sed -n 's/^deb /deb-src /p' "$file" > "$work/sources/$(basename "$file" .list).list"
done
for file in /etc/apt/sources.list.d/*.sources; do
  test -f "$file" && sed 's/^Types:.*/Types: deb-src deb/' "$file" > "$work/sources/$(basename "$file")"
done
apt() {
  apt-get -q -o Dir::Etc::sourcelist=/dev/null -o Dir::Etc::sourceparts="$work/sources" -o Dir::State::lists="$work/lists" \
    -o APT::Sandbox::User=root "$@"
}
apt update || echo "build-kubernetes: not every mirror answered; going on with those that did" >&2
cd "$work/download"
apt source --download-only kubernetes # checks sizes and hashes, and keeps what is there
set -- kubernetes_*.dsc
test -f "$1" || fail "no mirror of this machine has Debian's source package kubernetes"
version=$(sed -n 's/^Version: //p' "$1" | sed 's/.*really//; s/-[^-]*$//; s/+.*//')
echo "Building Kubernetes $version"

source="$work/source"
if [ ! -f "$work/unpacked" ]; then
  rm -rf "$source"
  dpkg-source --no-check -x "$1" "$source" > /dev/null
  # Go since 1.18 crashes with the reflect2 of this source (the API server at its first custom object): Debian has a later one.
  apt download golang-github-modern-go-reflect2-dev
  dpkg-deb -x golang-github-modern-go-reflect2-dev_*.deb "$work/reflect2"
  reflect2="vendor/github.com/modern-go/reflect2"
  rm -f "$source/$reflect2"/*.go "$source/$reflect2"/*.s
  cp "$work/reflect2/usr/share/gocode/src/${reflect2#vendor/}"/*.go "$work/reflect2/usr/share/gocode/src/${reflect2#vendor/}"/*.s "$source/$reflect2/"
  mkdir -p "$source/.go/src/k8s.io"
  ln -sfn ../../.. "$source/.go/src/k8s.io/kubernetes"
  minor=${version#*.}
  cat > "$work/version" <<END_OF_VERSION
KUBE_GIT_COMMIT=debian
KUBE_GIT_TREE_STATE=archive
KUBE_GIT_VERSION=v$version
KUBE_GIT_MAJOR=${version%%.*}
KUBE_GIT_MINOR=${minor%%.*}
END_OF_VERSION
  touch "$work/unpacked"
fi

# The compiler keeps what it has made, so a build that was killed goes on where it was.
export GOPATH="$source/.go" GOCACHE="$work/go-cache" CGO_ENABLED=0 GOFLAGS=-mod=vendor GOPROXY=off
export KUBE_GIT_VERSION_FILE="$work/version" PATH="/usr/lib/go/bin:$PATH"
cd "$source"
what=""
for program in $programs; do what="$what cmd/$program"; done
nice -n 15 make WHAT="$what"

mkdir -p "$work/made/bin"
for program in $programs; do
  install "$source/_output/bin/$program" "$work/made/bin/" 2> /dev/null || install "$source/_output/local/go/bin/$program" "$work/made/bin/"
done
# The smallest container that waits: what holds a pod's namespaces.
cat > "$work/pause.c" <<'END_OF_PAUSE'
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
static void end(int number) { exit(0); }
static void reap(int number) { while (waitpid(-1, NULL, WNOHANG) > 0); }
int main(void) {
  signal(SIGINT, end);
  signal(SIGTERM, end);
  signal(SIGCHLD, reap);
  for (;;) pause();
}
END_OF_PAUSE
gcc -Os -static -s -o "$work/made/bin/pause" "$work/pause.c"
rm -rf "$cache/kubernetes-$version"
mv "$work/made" "$cache/kubernetes-$version"
rm -rf "$work"
echo "Built: $cache/kubernetes-$version/bin"
