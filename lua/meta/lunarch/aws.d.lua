---@meta lunarch.aws
-- luacheck: ignore

---Credentials, the region and the endpoint for requests to AWS, and to what speaks its protocols, found where the AWS tools find them. They are for
---http's option `aws_sigv4`, which signs a request.
---@class lunarch.aws
local aws = {}

---@class lunarch.AwsOptions
---@field profile? string of the AWS tools' files. It goes before keys in the environment
---@field region? string of STS, where a role is assumed; default: aws.region(profile)

---Credentials that are found when they are first asked for, and renewed before they end.
---@class lunarch.Credentials
local Credentials = {}

---What http's option `aws_sigv4` wants.
---@param service string as "s3"
---@param region string
---@param timeout? number seconds to wait where there are none yet (60)
---@return lunarch.HttpSignature? sign
---@return lunarch.Error? err "denied": none were found, and where was looked; "timeout"
function Credentials:sign(service, region, timeout) end

---The credentials as they are now.
---@param timeout? number seconds to wait where there are none yet (60)
---@return { key: string, secret: string, token: string?, expires: number?, source: string }? kept
---@return lunarch.Error? err "denied" or "timeout"
function Credentials:get(timeout) end

---The server has refused them: they are looked for again before they are next given.
---@param key? string the access key that was refused: if newer ones are kept by then, nothing is done
function Credentials:renew(key) end

---Looks for nothing yet. In this order: keys in the environment, a web identity, the profile (a role with another profile's or a
---web identity's keys, keys, `credential_process`), a container's, an instance's.
---@param options? lunarch.AwsOptions
---@return lunarch.Credentials credentials
function aws.credentials(options) end

---The region that the environment (`AWS_REGION`, `AWS_DEFAULT_REGION`) or the profile names; with a profile, that one's goes first.
---@param profile? string
---@return string? region
function aws.region(profile) end

---Where the AWS tools would ask a service: `AWS_ENDPOINT_URL_<SERVICE>`, `AWS_ENDPOINT_URL`, `endpoint_url` of the profile's `services` section, or of
---the profile; else Amazon's own, which `use_fips_endpoint` and `use_dualstack_endpoint` change.
---@param service string as "s3"
---@param region string
---@param profile? string
---@return string? url
---@return boolean|lunarch.Error configured whether it was named; or the error, "invalid": what names it is wrong
function aws.endpoint(service, region, profile) end

---A setting of the profile, as the AWS tools' files have it; one that stands below `s3 =` is called "s3.addressing_style".
---@param name string in lower case
---@param profile? string
---@return string? value
function aws.setting(name, profile) end

return aws
