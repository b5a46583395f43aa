//go:build tools

// Package etcd pins the real etcd that the rig runs.
package etcd

import _ "go.etcd.io/etcd/server/v3"
