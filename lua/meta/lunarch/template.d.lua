---@meta lunarch.template
-- luacheck: ignore

---Small text templates: values, loops and conditions, no code.
---`{{name}}` is a value, `{{servers.1.host}}` a value inside of tables, `{{name | html}}` a value with another escape.
---`{% for x in list %}` and `{% for key, x in table %}` (keys in order), `{% if name %}`, `{% if not name %}`, `{% else %}`, `{% end %}`;
---if a tag is alone on its line, the line is removed. A value that is not there, and a tag that is not understood, is an error with the
---template's line.
---@class lunarch.template
local template = {}

---@class lunarch.TemplateOptions
---@field escape? "html"|"json"|"raw"|"shell"|"url"|fun(text: string): string how each value is escaped ("raw": not at all)
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
