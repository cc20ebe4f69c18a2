-- Starts `lispgpt lsp` for a buffer, or lets the server that runs for its folder have it, too.
local M = {}

local function root_of(path)
  local found = vim.fn.finddir(".git", path .. ";")
  if found == "" then
    found = vim.fn.findfile("pyproject.toml", path .. ";")
  end
  return found == "" and path or vim.fn.fnamemodify(found, ":p:s?/$??:h")
end

-- Before Neovim 0.8, which has vim.lsp.start
local function attach(buffer, config)
  for _, client in pairs(vim.lsp.get_active_clients()) do
    if client.name == config.name and client.config.root_dir == config.root_dir then
      return vim.lsp.buf_attach_client(buffer, client.id)
    end
  end
  vim.lsp.buf_attach_client(buffer, vim.lsp.start_client(config))
end

function M.start(buffer)
  if vim.fn.executable("lispgpt") == 0 then
    return vim.notify_once("lispgpt is not on the PATH: start Neovim where its environment is active", vim.log.levels.WARN)
  end
  local folder = vim.fn.fnamemodify(vim.api.nvim_buf_get_name(buffer), ":p:h")
  local config = { name = "lispgpt", cmd = { "lispgpt", "lsp" }, root_dir = root_of(folder) }
  if vim.lsp.start then
    vim.lsp.start(config, { bufnr = buffer })
  else
    attach(buffer, config)
  end
end

return M
