// Package work is what the leaders in Go of make compare do: as actor.c, in the process of the elector, as users of a library do it.
package work

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"
)

func monotonic() float64 {
	var t syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&t)), 0)
	return float64(t.Sec) + float64(t.Nsec)/1e9
}

// Do acts every 10 ms until DIR/NAME.finish is there or, if it is obedient, the context is done. With a command it runs that
// instead, which the context ends (https://pkg.go.dev/os/exec#CommandContext).
func Do(ctx context.Context, dir, name, kind string, command []string) {
	if len(command) > 0 {
		exec.CommandContext(ctx, command[0], command[1:]...).Run()
		return
	}
	acts, err := os.OpenFile(fmt.Sprintf("%s/%s.%d.%d.acts", dir, name, os.Getpid(), time.Now().UnixNano()), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o666)
	if err != nil {
		panic(err)
	}
	defer acts.Close()
	for kind == "busy" || ctx.Err() == nil {
		if _, err := os.Stat(dir + "/" + name + ".finish"); err == nil {
			return
		}
		binary.Write(acts, binary.LittleEndian, math.Float64bits(monotonic()))
		time.Sleep(10 * time.Millisecond)
	}
}
