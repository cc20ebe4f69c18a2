" Programs of lispgpt: comments, words, and the layout of `lispgpt fmt`.
if exists("b:did_ftplugin") | finish | endif
let b:did_ftplugin = 1
setlocal commentstring=;\ %s comments=:; lisp expandtab
setlocal iskeyword=@,48-57,_,-,!,?,*,+,=,<,>,%,.,/,&,#,\|,$
setlocal equalprg=lispgpt\ fmt\ - formatprg=lispgpt\ fmt\ -
if has("nvim")
  lua require("lispgpt").start(vim.api.nvim_get_current_buf())
endif
