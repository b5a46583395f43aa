"""`kubectl gpu completion`."""

import argparse
import sys

EPILOG = """examples:
  source <(kubectl gpu completion bash)                            # in ~/.bashrc, for the program kubectl-gpu
  kubectl gpu completion zsh > "${fpath[1]}/_kubectl-gpu"
  kubectl gpu completion fish > ~/.config/fish/completions/kubectl-gpu.fish
  kubectl gpu completion kubectl > ~/.local/bin/kubectl_complete-gpu && chmod +x ~/.local/bin/kubectl_complete-gpu

The last one is for `kubectl gpu`: kubectl's own completion (1.26 and later) runs kubectl_complete-gpu from your PATH.
If you installed Aliquot with pip or pipx, it is there already.
"""

_BASH = """\
_kubectl_gpu() {
  local out
  out=$(kubectl-gpu __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null) || return
  COMPREPLY=($(compgen -W "${out%$'\\n'*}" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o default -F _kubectl_gpu kubectl-gpu
"""
_ZSH = """\
#compdef kubectl-gpu
_kubectl_gpu() {
  local -a out
  out=("${(@f)$(kubectl-gpu __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
  (( ${#out} > 1 )) && compadd -- "${(@)out[1,-2]}" || _files
}
compdef _kubectl_gpu kubectl-gpu
"""
_FISH = """\
function __kubectl_gpu
  set -l words (commandline -opc) (commandline -ct)
  kubectl-gpu __complete $words[2..-1] 2>/dev/null | string match -rv '^:'
end
complete -c kubectl-gpu -a '(__kubectl_gpu)'
"""
_KUBECTL = """\
#!/bin/sh
exec kubectl-gpu __complete "$@"
"""
_SCRIPTS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH, "kubectl": _KUBECTL}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", choices=tuple(_SCRIPTS), help="whose script to print")


def run(options: argparse.Namespace) -> int:
    sys.stdout.write(_SCRIPTS[options.shell])
    return 0
