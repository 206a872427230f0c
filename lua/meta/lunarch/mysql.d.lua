---@meta lunarch.mysql
-- luacheck: ignore

---Statements to MariaDB and MySQL servers, on connections that stay open, and writes that the server refuses to a former leader.
---@class lunarch.mysql
local mysql = {}

---@class lunarch.MysqlTls
---@field ca? string the file of the authorities that may have signed the server's certificate (the system's)
---@field cert? string the file of a certificate for the server
---@field key? string the file of its key
---@field verify? boolean whether the certificate must be good, and the host's (true)

---@class lunarch.MysqlOptions
---@field host? string a name or an address; or `unix`
---@field port? integer (3306)
---@field unix? string the path of a socket
---@field user? string
---@field password? string
---@field database? string
---@field tls? boolean|lunarch.MysqlTls without it nothing is encrypted; with it a server that has no TLS is refused
---@field timeout? number seconds for each statement, with the wait for its turn (10)
---@field connect_timeout? number seconds for a log-in (10)
---@field begin? string|string[] statements for each new connection, as "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
---@field fence? string the name of the row in the table lunarch_fences, one for each kind of work ("leader")

---Connects. A connection that breaks is made again by the next call. It belongs to the term in which it was opened, and closes with it.
---@param options lunarch.MysqlOptions
---@return lunarch.MysqlDatabase? db
---@return lunarch.MysqlError? err
function mysql.open(options) end

---@class lunarch.MysqlError: lunarch.Error
---@field unsent boolean true: surely nothing was done
---@field errno? integer the server's number, or from 2000 to 2999 libmariadb's
---@field sqlstate? string

---The rows of a statement's result, each a table by column; NULL is nil, whole numbers and floats are numbers, all else is text: DECIMAL, dates, and
---what is larger than math.maxinteger.
---@class lunarch.MysqlRows
---@field count integer how many there are, or how many rows were changed
---@field insert_id? integer the number that the server gave to the first new row

---A database: one connection, which tasks use in turn. A call that ends without an answer, since its time is up or its task is cancelled, closes it.
---@class lunarch.MysqlDatabase
---@field timeout number as in the options; it can be changed
---@field connect_timeout number
local MysqlDatabase = {}

---Runs one statement.
---@param text string with a ? for each value
---@param ... string|number|boolean|table|nil the values; a table is JSON, a text that is no UTF-8 is bytes
---@return lunarch.MysqlRows? rows
---@return lunarch.MysqlError? err "failed": the server refused; "conflict": a deadlock, or a row that stays locked; "denied", "full", "unreachable"; "timeout" and "lost": it may have been done
function MysqlDatabase:query(text, ...) end

---Runs body(tx) in a transaction. It is committed, unless the function raises, or returns nil or false, or one of its statements fails.
---@param body fun(tx: lunarch.MysqlTransaction): ...
---@return any ... what the function returns; true if that is nothing; nil and an error if it was not committed
function MysqlDatabase:transaction(body) end

---A statement, or a transaction, that is done if no larger token than the term's has been seen. The table lunarch_fences is made by the first one.
---@param term lunarch.Term
---@param work string|fun(tx: lunarch.MysqlTransaction): ...
---@param ... string|number|boolean|table|nil the values of a statement
---@return any ... as from query or transaction; the error "fenced": there is a newer leader, and nothing was done
function MysqlDatabase:fenced(term, work, ...) end

---Closes it for good.
function MysqlDatabase:close() end

---A transaction, until its function returns.
---@class lunarch.MysqlTransaction
local MysqlTransaction = {}

---Runs one statement. After one that has failed none is sent any more.
---@param text string
---@param ... string|number|boolean|table|nil
---@return lunarch.MysqlRows? rows
---@return lunarch.MysqlError? err
function MysqlTransaction:query(text, ...) end

return mysql
