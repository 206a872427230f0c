---@meta lunarch.tcp
-- luacheck: ignore

---Connections to servers whose protocol no other module speaks: lines and bytes, also over TLS that begins later (STARTTLS). A connection belongs to
---the term in which it was made.
---@class lunarch.tcp
local tcp = {}

---@class lunarch.TcpTls
---@field ca? string file (PEM), instead of the system's certificate authorities
---@field cert? string file (PEM): this client's certificate
---@field key? string file (PEM): its key, if it is not in cert
---@field server_name? string instead of host, also in the server's certificate

---@class lunarch.TcpOptions
---@field host string name or address
---@field port integer
---@field timeout? number seconds until it is connected (10)
---@field tls? lunarch.TcpTls TLS from the first byte; `{}` for the presets

---@class lunarch.TcpConnection
---@field name string host and port
local TcpConnection = {}

---Connects, and with `tls` begins TLS.
---@param options lunarch.TcpOptions
---@return lunarch.TcpConnection? connection
---@return lunarch.Error? err "unreachable", "timeout", "denied"
function tcp.connect(options) end

---The next line, without its end (`\n` or `\r\n`), of 1 MB at most. One task at a time reads.
---@param timeout? number seconds; what has come until then stays for the next call
---@return string? line
---@return lunarch.Error? err "timeout", "unreachable", "denied" (the server's certificate), "invalid"
function TcpConnection:line(timeout) end

---The next bytes.
---@param count integer
---@param timeout? number seconds; what has come until then stays for the next call
---@return string? bytes
---@return lunarch.Error? err as of line
function TcpConnection:bytes(count, timeout) end

---Sends a text. It does not wait: what the other side does not take yet is kept.
---@param text string
---@return true? kept
---@return lunarch.Error? err `unsent`: nothing of the text was sent
function TcpConnection:write(text) end

---From now on what is written goes over TLS. That the server is the one of that name is found out before anything is sent.
---@param options? lunarch.TcpTls
---@return true? begun
---@return lunarch.Error? err
function TcpConnection:starttls(options) end

---What waits for it is told ("cancelled").
function TcpConnection:close() end

return tcp
