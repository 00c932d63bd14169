package cli

import "github.com/stint-go/stint/policy"

func parsed(path string, data []byte) (*policy.File, []policy.Layer, error) {
	f, err := policy.Parse(path, data)
	return f, nil, err
}
