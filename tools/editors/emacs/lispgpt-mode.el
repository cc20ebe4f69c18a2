;;; lispgpt-mode.el --- programs of lispgpt  -*- lexical-binding: t -*-

;; (add-to-list 'load-path ".../tools/editors/emacs")
;; (require 'lispgpt-mode)
;; M-x lispgpt-mode in a program, M-x eglot for the language server, M-x lispgpt-format for the layout.

(require 'lisp-mode)
(require 'lispgpt-words)

(defvar lispgpt-mode-syntax-table
  (let ((table (make-syntax-table lisp-data-mode-syntax-table)))
    (modify-syntax-entry ?\[ "(]" table)
    (modify-syntax-entry ?\] ")[" table)
    (modify-syntax-entry ?{ "(}" table)
    (modify-syntax-entry ?} "){" table)
    (modify-syntax-entry ?~ "'" table)
    (modify-syntax-entry ?| "_" table)
    table))

(defun lispgpt--any (words)
  "A pattern of any of WORDS as a whole name."
  (concat "\\_<" (regexp-opt words t) "\\_>"))

(defconst lispgpt-font-lock-keywords
  (list (list (concat "(" (regexp-opt lispgpt-defining t) "[ \t\n]+\\([^][ \t\n(){}]+\\)")
              '(1 font-lock-keyword-face) '(2 font-lock-function-name-face))
        (cons (lispgpt--any lispgpt-specials) 'font-lock-keyword-face)
        (cons (lispgpt--any lispgpt-constants) 'font-lock-constant-face)
        (cons (lispgpt--any lispgpt-types) 'font-lock-type-face)
        (cons (lispgpt--any (append lispgpt-builtins lispgpt-core)) 'font-lock-builtin-face)
        '("\\_<:[A-Za-z_][^][ \t\n(){}]*" . font-lock-variable-name-face)))

;;;###autoload
(define-derived-mode lispgpt-mode lisp-data-mode "lispgpt"
  "Edit programs of lispgpt."
  (setq-local comment-start "; ")
  (setq-local font-lock-defaults '(lispgpt-font-lock-keywords)))

(defun lispgpt-format ()
  "Lay the buffer out as `lispgpt fmt' does; leave it as it is where it does not read."
  (interactive)
  (let ((laid-out (generate-new-buffer " *lispgpt fmt*")))
    (unwind-protect
        (if (zerop (call-process-region nil nil "lispgpt" nil (list laid-out nil) nil "fmt" "-"))
            (replace-buffer-contents laid-out)
          (message "lispgpt fmt: the buffer does not read"))
      (kill-buffer laid-out))))

(with-eval-after-load 'eglot
  (defvar eglot-server-programs)
  (add-to-list 'eglot-server-programs '(lispgpt-mode "lispgpt" "lsp")))

(provide 'lispgpt-mode)
;;; lispgpt-mode.el ends here
