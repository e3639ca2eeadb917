package pgproxy

const (
	headerBytes     = 5 // type and length
	maxStartupBytes = 10_000
	maxMessageBytes = 1 << 30 // the server's own limit
)

// Types of messages that the proxy looks into. A letter may mean different things in
// the two directions.
const (
	parseMsg     = 'P'
	bindMsg      = 'B'
	executeMsg   = 'E'
	queryMsg     = 'Q'
	syncMsg      = 'S'
	flushMsg     = 'H'
	functionMsg  = 'F'
	terminateMsg = 'X'

	commandCompleteMsg = 'C'
	emptyQueryMsg      = 'I'
	portalSuspendedMsg = 's'
	errorMsg           = 'E'
	readyMsg           = 'Z'
	backendKeyMsg      = 'K'
	noticeMsg          = 'N'
	notificationMsg    = 'A'
	parameterMsg       = 'S'
)
