package dynamodb_test

import (
	"encoding/json"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/millpond-go/millpond/middleware"
	"github.com/millpond-go/millpond/stores"
	"github.com/millpond-go/millpond/stores/dynamodb"
)

func TestURLsAreChecked(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"dynamodb://?region=eu-central-1":                                         "",
		"dynamodb://?region=a&endpoint=http://127.0.0.1:1&prefix=b_&migrate=true": "",
		"dynamodb://?retention=720h":                                              "",
		"dynamodb://?retention=1h":                                                "use a day or more",
		"dynamodb://?retention=-1h":                                               "retention",
		"dynamodb://?prefix=a/b":                                                  "use at most 200 letters",
		"dynamodb://?endpoint=127.0.0.1:8000":                                     "write http:// or https://",
		"dynamodb://table?region=a":                                               "names a host, path or fragment",
		"dynamodb://key:s3cret@?region=a":                                         "names a user",
		"dynamodb://?regoin=a":                                                    "regoin",
		"dynamodb://?migrate=perhaps":                                             "migrate",
	} {
		err := stores.DefaultMux().Check(url)
		if want == "" {
			require.NoError(t, err, url)
			continue
		}
		require.ErrorContains(t, err, want, url)
		require.NotContains(t, err.Error(), "s3cret")
	}
}

// offline is a store that asks nobody.
func offline(t *testing.T) *dynamodb.Store {
	t.Helper()
	s, err := dynamodb.New(t.Context(), dynamodb.Config{TablePrefix: "billing_", AWS: &aws.Config{
		Region: "eu-central-1", Credentials: credentials.NewStaticCredentialsProvider("a", "b", ""),
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// What the store cannot keep is refused before the first message.
func TestWhatItCannotKeepIsRefusedAtTheStart(t *testing.T) {
	t.Parallel()
	s := offline(t)
	_, err := middleware.NewInbox(s, middleware.InboxConfig{Service: "billing", Retry: middleware.RetryPolicy{Order: "key"}})
	require.ErrorContains(t, err, "keeps no order")
	_, err = middleware.NewInbox(s, middleware.InboxConfig{Service: "billing", RetryByHandler: map[string]middleware.RetryPolicy{"charge": {Order: "metadata:customer"}}})
	require.ErrorContains(t, err, `RetryByHandler["charge"].Order`)
	keyed := &middleware.Outputs{OrderKey: func(stores.Output) []byte { return nil }}
	_, err = middleware.NewInbox(s, middleware.InboxConfig{Service: "billing", Outputs: keyed})
	require.ErrorContains(t, err, "Outputs.OrderKey is set")
	_, err = middleware.NewInbox(s, middleware.InboxConfig{Service: "billing", Outputs: &middleware.Outputs{}})
	require.NoError(t, err)
	_, err = middleware.NewInbox(s, middleware.InboxConfig{Service: "billing", LeaseByHandler: map[string]middleware.LeaseConfig{"charge": {}}})
	require.NoError(t, err)
	_, _, err = s.Begin(t.Context(), stores.Claim{Key: stores.Key{Consumer: stores.Consumer{Service: "a", Handler: "b"}, ID: []byte("1")}})
	require.ErrorIs(t, err, stores.ErrNotRegistered)
}

func TestPoliciesOfRoles(t *testing.T) {
	t.Parallel()
	s := offline(t)
	for role, want := range map[stores.Role]struct{ has, lacks string }{
		stores.RoleMigrator: {"dynamodb:CreateTable", "dynamodb:DeleteItem"},
		stores.RoleRuntime:  {"table/billing_content", "dynamodb:CreateTable"},
		stores.RoleOperator: {"dynamodb:PutItem", "dynamodb:CreateTable"},
		stores.RoleReadOnly: {`"dynamodb:Select": "SPECIFIC_ATTRIBUTES"`, `"dynamodb:PutItem"`},
	} {
		grants := s.Grants(role)
		require.Len(t, grants, 1)
		var policy struct{ Statement []struct{ Effect string } }
		require.NoError(t, json.Unmarshal([]byte(grants[0]), &policy))
		require.NotEmpty(t, policy.Statement)
		require.Contains(t, grants[0], want.has, role)
		require.NotContains(t, grants[0], want.lacks, role)
	}
}
