//go:build tools

// Package volcano pins one of the Volcano schedulers that the tests run.
package volcano

import _ "volcano.sh/volcano/cmd/scheduler"
