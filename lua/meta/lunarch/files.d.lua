---@meta lunarch.files
-- luacheck: ignore

---Files that are replaced as a whole or not at all, and never by a former leader.
---@class lunarch.files
local files = {}

---@class lunarch.FileOptions
---@field token? integer|true the term's token (true: that of the term that runs): refused if a larger one has written this file
---@field mode? string of the file, as "0644"; default: that of the file it replaces
---@field timeout? number seconds (30)

---Replaces the file's text, or makes the file. Readers see the old text or the new one, also after a power cut. A link is followed.
---With a token, the file .NAME.token beside it keeps the largest token, which is checked under a lock. A file that was once written with a
---token is not written without one.
---@param path string
---@param text string
---@param options? lunarch.FileOptions
---@return true? written and on the disk
---@return lunarch.Error? err "fenced": a larger token has written it (err.token); "missing": no such directory; "denied", "full"; "timeout": not known
function files.write(path, text, options) end

---Reads a whole file.
---@param path string
---@return string? text
---@return lunarch.Error? err "missing", "denied"
function files.read(path) end

---The largest token that has written the file.
---@param path string
---@return integer? token nil: it was never written with one
---@return lunarch.Error? err
function files.token(path) end

return files
