package sqs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"

	"github.com/millpond-go/millpond/brokers"
)

var (
	// ErrNoQueue: the queue, or the SNS topic, does not exist.
	ErrNoQueue = errors.New("sqs: the queue does not exist")
	// ErrDenied: there are no credentials, or they are insufficient.
	ErrDenied = errors.New("sqs: access denied")
	// ErrTooLarge: a message exceeds its queue's limit. No message of the call was published.
	ErrTooLarge = fmt.Errorf("sqs: %w", brokers.ErrTooLarge)
	// ErrGroups: another group of this broker reads the queue, so each group would get only part of
	// the messages.
	ErrGroups = errors.New("sqs: another group reads the queue")
	// ErrTakenBack is the cause of a delivery's context when SQS has taken the message back: it was
	// not extended in time, or was held for 12 hours.
	ErrTakenBack = errors.New("sqs: the message was taken back")
)

// Error codes by their cause. The services spell some in several ways.
var (
	deniedCodes = []string{
		"AccessDenied", "AccessDeniedException", "AuthorizationError", "AuthorizationErrorException", "UnauthorizedOperation",
		"OptInRequired", "InvalidSecurity", "KmsAccessDenied", "KMSAccessDenied", "KMSAccessDeniedException",
	}
	credentialCodes = []string{
		"ExpiredToken", "ExpiredTokenException", "RequestExpired", "TokenRefreshRequired", "InvalidClientTokenId", "InvalidAccessKeyId",
		"UnrecognizedClientException", "MissingAuthenticationToken", "MissingAuthenticationTokenException", "IncompleteSignature",
		"IncompleteSignatureException", "InvalidToken",
	}
	clockCodes = []string{
		"RequestTimeTooSkewed", "RequestInTheFuture", "SignatureDoesNotMatch", "InvalidSignatureException", "AuthFailure", "InvalidSignature",
	}
	throttlingCodes = []string{
		"Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled", "RequestThrottledException", "TooManyRequestsException",
		"SlowDown", "RequestLimitExceeded", "KmsThrottled", "KMSThrottling", "KMSThrottlingException", "OverLimit", "BandwidthLimitExceeded",
	}
	serverCodes = []string{
		"InternalError", "InternalFailure", "InternalErrorException", "InternalServerError", "ServiceUnavailable", "ServiceUnavailableException", "RequestTimeout", "RequestTimeoutException",
	}
	missingCodes = []string{
		"QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", "NonExistentQueue", "NotFound", "NotFoundException",
	}
	handleCodes = []string{
		"ReceiptHandleIsInvalid", "MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight", "InvalidReceiptHandle",
	}
)

func codeOf(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}

func isCode(err error, codes []string) bool { return slices.Contains(codes, codeOf(err)) }

func isMissing(err error) bool {
	if _, ok := errors.AsType[*types.QueueDoesNotExist](err); ok {
		return true
	}
	if _, ok := errors.AsType[*snstypes.NotFoundException](err); ok {
		return true
	}
	return errors.Is(err, ErrNoQueue) || isCode(err, missingCodes)
}

// isTransient reports whether the same request may succeed later, with nothing changed here.
func isTransient(err error) bool {
	var (
		network net.Error
		invalid smithy.InvalidParamsError
	)
	switch {
	case errors.As(err, &invalid):
		return false
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network):
		return true
	case codeOf(err) == "":
		return true // no answer from the service: a connection error
	}
	if api, ok := errors.AsType[smithy.APIError](err); ok && api.ErrorFault() == smithy.FaultServer {
		return true
	}
	return isCode(err, throttlingCodes) || isCode(err, serverCodes) || isCode(err, credentialCodes) || isCode(err, clockCodes)
}

// explain adds a fix and a sentinel to an operation's error. action is the IAM action that the
// operation needs.
func explain(action string, err error) error {
	switch {
	case err == nil:
		return nil
	case isMissing(err):
		return fmt.Errorf("%w: create it, or let it be created with create_queues=true: %w", ErrNoQueue, err)
	case isCode(err, deniedCodes):
		return fmt.Errorf("%w: allow %s: %w", ErrDenied, action, err)
	case isCode(err, credentialCodes):
		return fmt.Errorf("%w: %w: the credentials are expired or wrong: renew them where the SDK's provider chain finds them: %w", ErrDenied, brokers.ErrUnavailable, err)
	case isCode(err, clockCodes):
		return fmt.Errorf("%w: %w: the signature was refused: check that this machine's clock is right, and the secret key: %w", ErrDenied, brokers.ErrUnavailable, err)
	case isCode(err, throttlingCodes):
		return fmt.Errorf("%w: requests are throttled: %w", brokers.ErrUnavailable, err)
	case isTransient(err):
		return fmt.Errorf("%w: %w", brokers.ErrUnavailable, err)
	default:
		return err
	}
}

// refresh makes the SDK look for credentials again if these were refused: they may have been
// renewed.
func refresh(c aws.CredentialsProvider, err error) {
	if cache, ok := c.(*aws.CredentialsCache); ok && isCode(err, credentialCodes) {
		cache.Invalidate()
	}
}

// entryError is the error of one entry in a batch.
func entryError(e types.BatchResultErrorEntry) error {
	fault := smithy.FaultServer
	if e.SenderFault {
		fault = smithy.FaultClient
	}
	return &smithy.GenericAPIError{Code: aws.ToString(e.Code), Message: aws.ToString(e.Message), Fault: fault}
}

// isGone reports whether a receipt handle is no longer valid: the message was deleted, or another
// consumer received it. AWS also says so in the text of a general parameter error.
func isGone(err error) bool {
	api, ok := errors.AsType[smithy.APIError](err)
	if !ok {
		return false
	}
	code := api.ErrorCode()
	return slices.Contains(handleCodes, code) || strings.Contains(code, "ReceiptHandle") ||
		code == "InvalidParameterValue" && strings.Contains(api.ErrorMessage(), "for parameter ReceiptHandle is invalid")
}
