---@meta lunarch.sql
-- luacheck: ignore

---Statements to a PostgreSQL server, through psql(1), and writes that the server refuses to a former leader.
---@class lunarch.sql
local sql = {}

---@class lunarch.SqlOptions
---@field timeout? number seconds for each call (10); after it the server gives up, too
---@field password? string else the URI's, or what psql finds itself (PGPASSWORD, ~/.pgpass)
---@field fence? string the name of the row in the table lunarch_fences, one for each kind of work ("leader"); not of sql.beside

---A database. Nothing is sent yet. The table lunarch_fences is made by the first fenced write.
---@param uri string as "postgres://USER@HOST:PORT/DATABASE"
---@param options? lunarch.SqlOptions
---@return lunarch.Database
function sql.connect(uri, options) end

---The database of the term's own lock, fenced by the lock's row: during a fenced write nobody else is elected.
---@param term lunarch.Term its lock is postgres://...
---@param options? lunarch.SqlOptions
---@return lunarch.Database
function sql.beside(term, options) end

---The rows of a statement's result, each a table by column; NULL is nil, numbers (not numeric), booleans and JSON are values, all else is text.
---@class lunarch.Rows
---@field count integer how many there are, or how many rows were changed

---A PostgreSQL database. Each call is a transaction of its own.
---@class lunarch.Database
local Database = {}

---Runs one statement (SELECT, INSERT, UPDATE, DELETE, MERGE, VALUES).
---@param text string with $1, $2, ... for the values
---@param ... string|number|boolean|table|nil the values; a table is JSON
---@return lunarch.Rows? rows
---@return lunarch.Error? err "failed": the server refused (err.sqlstate); "unreachable": it was not sent; "denied"; else it may have been done
function Database:query(text, ...) end

---Runs one statement if no larger token than the term's has been seen.
---@param term lunarch.Term
---@param text string
---@param ... string|number|boolean|table|nil
---@return lunarch.Rows? rows
---@return lunarch.Error? err "fenced": there is a newer leader, and nothing was done
function Database:fenced(term, text, ...) end

---Runs several statements in one fenced transaction: all of them are done, or none.
---@param term lunarch.Term
---@param list table[] as { { "UPDATE ... $1", 5 }, { "DELETE ..." } }; n = 3 says how many values there are if some are nil
---@return lunarch.Rows[]? results
---@return lunarch.Error? err
function Database:fenced_all(term, list) end

---Runs any commands of psql, without values and results, for instance to make tables.
---@param text string
---@return true? done
---@return lunarch.Error? err
function Database:run(text) end

return sql
