// Parses each argument as a duration and prints a line for each: the nanoseconds, or "error".
package main

import (
	"fmt"
	"os"
	"time"
)

func main() {
	for _, argument := range os.Args[1:] {
		duration, err := time.ParseDuration(argument)
		if err != nil {
			fmt.Println("error")
			continue
		}
		fmt.Println(duration.Nanoseconds())
	}
}
