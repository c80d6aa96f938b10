// Goroutines that hash and exchange messages until standard input ends. Then prints whether a hash was wrong.
package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	var rounds, wrong atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	for n := 0; n < 8; n++ {
		all.Add(1)
		words := make(chan [32]byte, 4)
		go func() {
			for !stop.Load() {
				words <- sha256.Sum256(make([]byte, 4096))
			}
			close(words)
		}()
		go func() {
			defer all.Done()
			expected := sha256.Sum256(make([]byte, 4096))
			for word := range words {
				if word != expected {
					wrong.Add(1)
				}
				if rounds.Add(1)%1000 == 0 {
					time.Sleep(time.Millisecond)
				}
			}
		}()
	}
	fmt.Println("ready")
	io.Copy(io.Discard, os.Stdin)
	stop.Store(true)
	all.Wait()
	if rounds.Load() > 0 && wrong.Load() == 0 {
		fmt.Println("TEST PASSED")
	} else {
		fmt.Println("TEST FAILED")
	}
}
