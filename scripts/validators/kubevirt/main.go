// Reads a VirtualMachine as YAML on standard input, strictly, into KubeVirt's own type, and prints what it understood as JSON.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"

	v1 "kubevirt.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := read(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// instance has the fields of KubeVirt's VirtualMachineInstanceSpec but not its UnmarshalJSON, which takes fields that do not exist.
type instance v1.VirtualMachineInstanceSpec

func read() error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var machine v1.VirtualMachine
	if err := yaml.UnmarshalStrict(text, &machine); err != nil {
		return err
	}
	if err := readInstance(text); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(machine)
}

func readInstance(text []byte) error {
	plain, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return err
	}
	var outer struct {
		Spec struct {
			Template struct {
				Spec json.RawMessage `json:"spec"`
			} `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(plain, &outer); err != nil {
		return err
	}
	strict := json.NewDecoder(bytes.NewReader(outer.Spec.Template.Spec))
	strict.DisallowUnknownFields()
	return strict.Decode(new(instance))
}
