-- Nothing here is unique but the accounts: a deposit that is made twice is seen.
CREATE TABLE account (
    id      text PRIMARY KEY,
    balance bigint NOT NULL
);

CREATE TABLE deposit (
    id      text   NOT NULL,
    account text   NOT NULL,
    amount  bigint NOT NULL
);
