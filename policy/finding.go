package policy

// Level is how bad a finding is.
type Level string

// The levels. Both are worth a change; an Error breaks a promise of the contract.
const (
	Error   Level = "error"
	Warning Level = "warning"
)

// A Finding is something in one or several files that will hurt.
type Finding struct {
	Position
	// Code names the kind of finding, and stays the same: "allocation-over-deadline".
	Code  string
	Level Level
	// Service is whose file it is about, and Key what in it
	// ("dependencies.inventory.timeout"). Of a Layer of which no file tells, it is
	// the service that is called, and Key is empty.
	Service, Key string
	// What is wrong, with its figures; Why it hurts; Do is what would be right.
	What, Why, Do string
}
