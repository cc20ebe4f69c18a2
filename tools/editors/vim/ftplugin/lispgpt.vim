" Programs of lispgpt: comments, words, and the layout of `lispgpt fmt`.
if exists("b:did_ftplugin") | finish | endif
let b:did_ftplugin = 1
setlocal commentstring=;\ %s comments=:; lisp expandtab
setlocal iskeyword=@,48-57,_,-,!,?,*,+,=,<,>,%,.,/,&,#,\|,$
setlocal equalprg=lispgpt\ fmt\ - formatprg=lispgpt\ fmt\ -
if has("nvim")
  lua vim.lsp.start({ name = "lispgpt", cmd = { "lispgpt", "lsp" }, root_dir = vim.fs.root(0, { ".git", "pyproject.toml" }) })
endif
