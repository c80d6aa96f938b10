// Reads a PodMonitor (JSON) from standard input into the types of the Prometheus operator, and fails at a
// field that these do not have. `scripts/helm.sh` builds it.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
)

func main() {
	var monitor monitoring.PodMonitor
	decoder := json.NewDecoder(os.Stdin)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&monitor); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
