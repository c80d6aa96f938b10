#!/usr/bin/env bash
# Checks the Helm chart: lints it, renders it with several sets of values, validates the objects against the
# schemas of several versions of Kubernetes, checks their security properties, and that wrong values are
# refused.
#
# Usage: scripts/helm.sh
#
# HELM=PATH     the command (default: in target/tools, built there from its source with Go if it is missing)
# THERMO=PATH   the command that checks the configurations (default: the newest in TARGET_DIR; without one,
#               they are not checked)
set -euo pipefail
cd "$(dirname "$0")/.."

version=v3.19.0
target=${TARGET_DIR:-${CARGO_TARGET_DIR:-target}}
tools=$(mkdir -p "$target/tools/helm" && cd "$target/tools/helm" && pwd)
helm=${HELM:-$tools/helm}
if [ ! -x "$helm" ]; then
    command -v go >/dev/null || { echo "helm: neither helm nor Go is installed: install one, or set HELM=PATH" >&2; exit 2; }
    echo "helm: building helm $version, which takes minutes once" >&2
    GOBIN=$tools go install "helm.sh/helm/v3/cmd/helm@$version"
fi
if [ ! -x "$tools/podmonitor" ] && command -v go >/dev/null; then
    (cd tests/helm/podmonitor && go build -o "$tools/podmonitor" .)
fi
if ! "$tools/python/bin/python" -c 'import kubernetes_validate' 2>/dev/null; then
    python3 -m venv "$tools/python"
    "$tools/python/bin/pip" install --quiet --disable-pip-version-check 'kubernetes-validate==1.37.*' pyyaml
fi
if [ -z "${THERMO:-}" ]; then
    for built in "$target/debug/thermo" "$target/release/thermo"; do
        [ -x "$built" ] && { [ -z "${THERMO:-}" ] || [ "$built" -nt "$THERMO" ]; } && THERMO=$built
    done
fi
PODMONITOR=$tools/podmonitor HELM=$helm THERMO=${THERMO:-} exec "$tools/python/bin/python" tests/helm/check.py
