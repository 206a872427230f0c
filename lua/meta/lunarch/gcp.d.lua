---@meta lunarch.gcp
-- luacheck: ignore

---Access tokens for requests to Google Cloud, found where Google's tools find them (application default credentials). They are for http's option
---`bearer`.
---@class lunarch.gcp
local gcp = {}

---@class lunarch.GcpOptions
---@field scope? string what the token is for; default: "https://www.googleapis.com/auth/cloud-platform"
---@field file? string of the credentials; it goes before what the environment names

---Tokens that are found when they are first asked for, and renewed before they end.
---@class lunarch.GcpCredentials
local GcpCredentials = {}

---What http's option `bearer` wants.
---@param timeout? number seconds to wait where there is none yet (60)
---@return string? token
---@return lunarch.Error? err "denied": none was found, and where was looked; "timeout"
function GcpCredentials:token(timeout) end

---The token as it is now, and where it is from.
---@param timeout? number seconds to wait where there is none yet (60)
---@return { token: string, source: string }? kept
---@return lunarch.Error? err "denied" or "timeout"
function GcpCredentials:get(timeout) end

---The server has refused it: another one is looked for before one is next given.
---@param token? string the one that was refused: if a newer one is kept by then, nothing is done
function GcpCredentials:renew(token) end

---Looks for nothing yet. In this order: the file that is given, or that `GOOGLE_APPLICATION_CREDENTIALS` names; the login of `gcloud auth
---application-default login`; the metadata server.
---@param options? lunarch.GcpOptions
---@return lunarch.GcpCredentials credentials
function gcp.credentials(options) end

return gcp
