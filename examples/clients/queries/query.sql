-- name: AddDeposit :exec
INSERT INTO deposit (id, account, amount)
VALUES (@id, @account, @amount);

-- name: Credit :exec
UPDATE account SET balance = balance + @amount
WHERE id = @id;
