---@meta lunarch.template
-- luacheck: ignore

---Small text templates: values, loops and conditions, no code.
---`{{name}}` is a value, `{{servers.1.host}}` one inside of others, `{{name | html}}` one with an escape of its own.
---`{% for x in list %}` and `{% for key, x in table %}` (keys in order), `{% if name %}`, `{% if not name %}`, `{% else %}`, `{% end %}`;
---a tag that is alone on its line takes the line with it. A value that is not there, and what cannot be read, is an error that names the
---template's line.
---@class lunarch.template
local template = {}

---@class lunarch.TemplateOptions
---@field escape? "html"|"json"|"raw"|"shell"|"url"|fun(text: string): string what becomes of each value ("raw": nothing)
---@field name? string of the template, for errors

---Fills in a template.
---@param text string
---@param values table
---@param options? lunarch.TemplateOptions
---@return string
function template.render(text, values, options) end

---Reads a template once, to be filled in many times.
---@param text string
---@param options? lunarch.TemplateOptions
---@return fun(values: table): string
function template.compile(text, options) end

return template
