//go:build tools

// Keeps the API server's dependencies in go.mod: it is built from here, not imported.
package tools

import _ "k8s.io/kubernetes/cmd/kube-apiserver"
