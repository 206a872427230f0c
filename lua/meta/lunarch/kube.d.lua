---@meta lunarch.kube
-- luacheck: ignore

---Objects of a Kubernetes API server, with the rights of the pod's service account, or of a token.
---@class lunarch.kube
local kube = {}

---@class lunarch.KubeOptions
---@field server? string as "https://10.96.0.1:443"; default: the pod's cluster, with its account's files
---@field token? string
---@field token_file? string read again for each request, since tokens are renewed
---@field ca? string a file, or PEM text
---@field namespace? string default: the pod's
---@field timeout? number seconds for each request (10)
---@field insecure? boolean verify nothing

---@class lunarch.KubeGet
---@field namespace? string|false default: the client's; false: what is in no namespace, as nodes

---@class lunarch.KubeSelection
---@field namespace? string|false default: the client's; false: all of them, or what is in none
---@field selector? string|table as "app=web,tier!=db", or { app = "web" }
---@field fields? string as "status.phase=Running"
---@field name? string of watch: this object alone

---@class lunarch.KubePatch
---@field namespace? string|false
---@field type? "merge"|"strategic"|"json" of the patch (merge)

---A client. Nothing is sent yet.
---@param options? lunarch.KubeOptions
---@return lunarch.KubeClient
function kube.connect(options) end

---What kube.connect returns. Resources are named as in their URLs: "pods", "apps/v1/deployments". Errors have the server's message and err.status.
---@class lunarch.KubeClient
local Client = {}

---Reads an object.
---@param resource string
---@param name string
---@param options? lunarch.KubeGet
---@return table? object
---@return lunarch.Error? err "missing", "denied", ...
function Client:get(resource, name, options) end

---Reads the objects of a kind, all pages of them.
---@param resource string
---@param options? lunarch.KubeSelection
---@return table[]? items
---@return lunarch.Error? err
function Client:list(resource, options) end

---Changes an object; json.null removes a field.
---@param resource string
---@param name string
---@param patch table
---@param options? lunarch.KubePatch
---@return table? object as it is now
---@return lunarch.Error? err
function Client:patch(resource, name, patch, options) end

---@class lunarch.KubeAddress
---@field address string an IP address, as POD_IP of the downward API
---@field port integer
---@field name? string the port's, as in the Service ("")
---@field namespace? string

---Creates an object.
---@param resource string
---@param object table
---@param options? lunarch.KubeGet
---@return table? object as it is now
---@return lunarch.Error? err "conflict": there is one of that name
function Client:create(resource, object, options) end

---Makes this address the only one of a Service without a selector: writes the EndpointSlice SERVICE-lunarch, by compare-and-swap. What a
---former leader left there is replaced.
---@param term lunarch.Term
---@param service string
---@param options lunarch.KubeAddress
---@return table? slice
---@return lunarch.Error? err "fenced": a larger token has written it; "foreign": somebody else's, it stays as it is; "conflict": it has just changed, try again
function Client:publish(term, service, options) end

---Takes every address out of the slice that publish writes; without one there is nothing to do.
---@param term lunarch.Term
---@param service string
---@param options? lunarch.KubeGet
---@return true? done
---@return lunarch.Error? err as of publish; "fenced": another leads already, and nothing is left to do
function Client:withdraw(term, service, options) end

---Sets labels of the pod in which the script runs (POD_NAME, else HOSTNAME); false removes one.
---@param labels table<string, string|false>
---@return table? pod
---@return lunarch.Error? err
function Client:label_self(labels) end

---Iterates over the objects that are there, as "added", and then over every change. Changes while the connection is broken come when there is
---a connection again. Raises if the server refuses: permissions, an unknown resource. A server that has just been started does not know its
---roles for a moment, so a watch that was allowed before raises only if it is refused six times in a row.
---@param resource string
---@param options? lunarch.KubeSelection
---@return fun(): "added"|"modified"|"deleted", table
function Client:watch(resource, options) end

return kube
