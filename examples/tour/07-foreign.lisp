; Foreign functions: the C library, and the program's own arguments.
;
;   lispgpt run examples/tour/07-foreign.lisp one three five
;
; prints: one has 3 letters
; prints: three has 5 letters
; prints: five has 4 letters
; prints: 0x2a, and pi is about 3.142
; prints: 12

(require-dialect arith llvm scf)

(link-library :c)
(extern-fn strlen (-> [!llvm.ptr] [i64]))
(extern-fn atoi (-> [!llvm.ptr] [i32]))
(extern-fn malloc (-> [i64] [!llvm.ptr]))
(extern-fn free (-> [!llvm.ptr] []))

; Variadic functions end their argument types in `...`.
(extern-fn snprintf (-> [!llvm.ptr i64 !llvm.ptr ...] [i32]))
(extern-fn puts (-> [!llvm.ptr] [i32]))

; C strings are global arrays.
(llvm.mlir.global {:sym_name "format" :linkage "internal" :constant true :global_type !llvm.array<27 x i8>
                   :value "0x%x, and pi is about %.3f\0"}
  (region))

(defn main [(: count i64) (: arguments !llvm.ptr)] -> i64
  (def letters
    (scf.for {:result i64} (: 0 index) (arith.index_cast {:result index} count) (: 1 index) (: 0 i64)
      (region
        (block [(: i index) (: sum i64)]
          (def place (ptr-at !llvm.ptr arguments (arith.index_cast {:result i64} i)))
          (def word (ptr-load !llvm.ptr place))
          (def length (call i64 strlen word))
          (println "%s has %ld letters" word length)
          (scf.yield (arith.addi sum length))))))
  (def line (call !llvm.ptr malloc (: 64 i64)))
  (def format (llvm.mlir.addressof {:global_name @format :result !llvm.ptr}))
  (snprintf line (: 64 i64) format (: 42 i32) (: 3.14159 f64))
  (puts line)
  (call! free line)
  letters)
