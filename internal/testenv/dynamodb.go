package testenv

import (
	"context"
	"net/http"
	"net/url"
	"os"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"

	"github.com/millpond-go/millpond/internal/testenv/dynamodblocal"
	"github.com/millpond-go/millpond/internal/testenv/shared"
)

var sharedDynamoDB = shared.Server{
	Name: "dynamodb", Version: dynamodblocal.Version,
	Start: func(ctx context.Context) (shared.Instance, error) { return dynamodblocal.Start(ctx) },
}

func init() { sharedDynamoDB.SuperviseIfAsked() }

// DynamoDBServer is a server with DynamoDB's interface.
type DynamoDBServer struct{ endpoint string }

// DynamoDB returns the server that the packages of this test run share: the one at
// MILLPOND_TEST_DYNAMODB_ENDPOINT if that is set, else a DynamoDB Local that is started when
// it is first needed and ends by itself some time after the last test. Use tables of your own.
func DynamoDB(tb testing.TB) *DynamoDBServer {
	tb.Helper()
	dummyCredentials()
	if endpoint := os.Getenv(dynamodblocal.EndpointVariable); endpoint != "" {
		return &DynamoDBServer{endpoint}
	}
	// Here, because what is wrong is easier to read than from the supervisor's log.
	if err := dynamodblocal.Install(tb.Context()); err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	// Not the test's context: the next test uses the server as well.
	endpoint, err := sharedDynamoDB.Open(context.Background())
	if err != nil {
		tb.Fatalf("testenv: %v", err)
	}
	return &DynamoDBServer{endpoint}
}

// Endpoint returns the address of the server, such as http://127.0.0.1:8000.
func (s *DynamoDBServer) Endpoint() string { return s.endpoint }

// URL returns the URL of a store on this server.
func (s *DynamoDBServer) URL() string {
	return "dynamodb://?" + url.Values{"region": {dynamodblocal.Region}, "endpoint": {s.endpoint}}.Encode()
}

// Config returns the configuration of a client, whose connections end with the test.
func (s *DynamoDBServer) Config(tb testing.TB) aws.Config {
	tb.Helper()
	transport := http.DefaultTransport.(*http.Transport).Clone() //nolint:forcetypeassert // it is one
	transport.MaxIdleConnsPerHost = 100
	tb.Cleanup(transport.CloseIdleConnections)
	return aws.Config{
		Region: dynamodblocal.Region, BaseEndpoint: aws.String(s.endpoint),
		Credentials: credentials.NewStaticCredentialsProvider("millpond", "millpond", ""),
		HTTPClient:  &http.Client{Transport: transport},
	}
}
