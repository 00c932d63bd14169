module github.com/stint-go/stint/policy

go 1.26.0

require (
	github.com/santhosh-tekuri/jsonschema/v6 v6.0.3
	github.com/stint-go/stint v0.0.0
	go.yaml.in/yaml/v3 v3.0.6
)

require (
	github.com/sony/gobreaker/v2 v2.4.0 // indirect
	golang.org/x/text v0.14.0 // indirect
)
