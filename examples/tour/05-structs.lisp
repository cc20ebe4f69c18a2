; Structs and pointers: a linked list.
;
;   lispgpt run examples/tour/05-structs.lisp
;
; prints: 3 2 1
; prints: sum: 6

(require-dialect arith llvm scf)

; Defines (new Node), which allocates one, and for each field a reader (Node/value p) and a writer (Node/value! p v).
(defstruct Node [value i64] [next !llvm.ptr])

(extern-fn free (-> [!llvm.ptr] []))

(defn push [(: list !llvm.ptr) (: value i64)] -> !llvm.ptr
  (def node (new Node))
  (Node/value! node value)
  (Node/next! node list)
  node)

(defn sum [(: list !llvm.ptr)] -> i64
  (def [end total]
    (loop {:result [!llvm.ptr i64]} [node list total (: 0 i64)]
      :while (arith.xori (null? node) (: true i1))
      :do [(Node/next node) (arith.addi total (Node/value node))]))
  total)

(defn free-all [(: list !llvm.ptr)] -> []
  (loop {:result !llvm.ptr} [node list]
    :while (arith.xori (null? node) (: true i1))
    :do (let [next (Node/next node)]
          (call! free node)
          next)))

(defn main []
  (def list (push (push (push (null-ptr) (: 1 i64)) (: 2 i64)) (: 3 i64)))
  (def second (Node/next list))
  (println "%ld %ld %ld" (Node/value list) (Node/value second) (Node/value (Node/next second)))
  (println "sum: %ld" (sum list))
  (free-all list))
