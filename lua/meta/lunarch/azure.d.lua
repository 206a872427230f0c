---@meta lunarch.azure
-- luacheck: ignore

---Access tokens for requests to Azure, and what authorises a request to a storage account, found where Azure's tools find them.
---@class lunarch.azure
local azure = {}

---@class lunarch.AzureOptions
---@field resource? string what the token is for; default: "https://storage.azure.com"
---@field client_id? string of the identity; default: `AZURE_CLIENT_ID`
---@field tenant_id? string default: `AZURE_TENANT_ID`

---@class lunarch.AzureStorageOptions
---@field client_id? string of the identity, where there is no key; default: `AZURE_CLIENT_ID`

---Tokens that are found when they are first asked for, and renewed before they end.
---@class lunarch.AzureCredentials
local AzureCredentials = {}

---What http's option `bearer` wants.
---@param timeout? number seconds to wait where there is none yet (60)
---@return string? token
---@return lunarch.Error? err "denied": none was found, and where was looked; "timeout"
function AzureCredentials:token(timeout) end

---The token as it is now, and where it is from.
---@param timeout? number seconds to wait where there is none yet (60)
---@return { token: string, source: string }? kept
---@return lunarch.Error? err "denied" or "timeout"
function AzureCredentials:get(timeout) end

---The server has refused it: another one is looked for before one is next given.
---@param token? string the one that was refused: if a newer one is kept by then, nothing is done
function AzureCredentials:renew(token) end

---A storage account, with what authorises requests to it.
---@class lunarch.AzureStorage
---@field account string
---@field endpoint? string of its blobs, where the connection string names one
---@field credentials? lunarch.AzureCredentials where there is neither a key nor a SAS
local AzureStorage = {}

---Adds to a request what authorises it: the signature of the account's key, the SAS, or a token (which goes over TLS alone).
---@param request lunarch.HttpRequest whose url has no query: that is in `query`
---@param timeout? number seconds to wait for a token where there is none yet (60)
---@return lunarch.HttpRequest? request a copy, for `http.request`
---@return lunarch.Error? err "denied", "timeout"; "invalid": it would be a token over plain HTTP
function AzureStorage:sign(request, timeout) end

---The server has refused the token: another one is looked for.
---@param request? lunarch.HttpRequest that was refused, as `sign` returned it: if a newer token is kept by then, nothing is done
function AzureStorage:renew(request) end

---Looks for nothing yet. In this order: an application's secret (`AZURE_CLIENT_SECRET`), workload identity (`AZURE_FEDERATED_TOKEN_FILE`), a
---service's managed identity (`IDENTITY_ENDPOINT`), a machine's.
---@param options? lunarch.AzureOptions
---@return lunarch.AzureCredentials credentials
function azure.credentials(options) end

---With the key or the SAS of `AZURE_STORAGE_CONNECTION_STRING`, `AZURE_STORAGE_KEY` or `AZURE_STORAGE_SAS_TOKEN`, if they are this account's; else with
---tokens.
---@param account string
---@param options? lunarch.AzureStorageOptions
---@return lunarch.AzureStorage? storage
---@return lunarch.Error? err "invalid": the key is none
function azure.storage(account, options) end

return azure
