//go:build tools

// Keeps the server's dependencies in go.mod: it is built from here, not imported.
package tools

import _ "github.com/nats-io/nats-server/v2"
