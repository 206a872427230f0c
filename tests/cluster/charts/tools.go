//go:build tools

// Keeps helm's and kustomize's dependencies in go.mod: they are built from here, not imported.
package tools

import (
	_ "helm.sh/helm/v3/cmd/helm"
	_ "sigs.k8s.io/kustomize/kustomize/v5"
)
