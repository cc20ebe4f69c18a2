; What every program has without asking: tensors' small change, and control sugar.
(require-dialect arith llvm scf)

(defn identity [x] x)

(defn square [x] (* x x))

; [1 "batch" 2] -> "[1 batch 2]"
(defn sizes-as-text [sizes]
  (str "[" (if (= (count sizes) 0) "" (fold (fn [text size] (str text " " size)) (first sizes) (rest sizes))) "]"))

; (divided "a width of" 48 6 "heads") -> 8; an error where parts do not divide the whole
(defn divided [what whole parts of-parts]
  (cond (not (and (= parts (floor parts)) (> parts 0)))
        (error (str parts " is no number of " of-parts))
        (!= 0 (mod whole parts))
        (error (str what " " whole " cannot be divided among " parts " " of-parts ": " whole " is no multiple of " parts))
        :else (quot whole parts)))

; Over the last dimension.
(defn sum [x] (reduce + 0.0 x))
(defn maximum [x] (reduce max -inf x))

; [rows columns] -> the first column of each row of which (chosen x best) is true, best being the row's largest element
; (NaN where one is that), as i32; 2147483647 where there is none.
(defn first-chosen [x chosen]
  (let [[rows columns] (shape x)
        best (maximum x)
        none 2147483647]
    (reduce min none (tensor [r rows c columns]
                       (select (chosen (at x r c) (at best r)) (cast c i32) none)))))

; [rows columns] -> the column of each row's largest element, the first of equals, as i32; that of the first NaN where
; there is one.
(defn argmax [x]
  (if (= 0 (dim x -1))
    (error "rows without elements have no largest one")
    (first-chosen x (fn [x best] (or (= x best) (!= x x))))))

; logits [batch columns] -> [batch]; columns from vocab on are padding.  2147483647, which is no token, where one is NaN.
(defn best-token [logits vocab]
  (first-chosen (slice logits [0 0] [(dim logits 0) vocab]) =))

; logits [batch columns] -> [batch] as before, and [batch 3] of i32: beside these tokens how many have as large a logit,
; and how far the next one below is, in sizes of the logits (their largest magnitude, on GPUs among chunks' best ones),
; an f32's bits.
(def report-words 3)
(defn best-and-report [logits vocab]
  (let [rows (dim logits 0)
        seen (slice logits [0 0] [rows vocab])
        token (first-chosen seen =)
        best (maximum seen)
        below (maximum (tensor [r rows c vocab] (select (< (at seen r c) (at best r)) (at seen r c) -inf)))
        equals (reduce + 0 (tensor [r rows c vocab] (select (= (at seen r c) (at best r)) (: 1 i32) (: 0 i32))))
        size (maximum (tensor [r rows c vocab] (select (> (at seen r c) -inf) (abs (at seen r c)) 0.0)))
        apart (tensor [r rows] (arith.bitcast {:result i32} (/ (- (at best r) (at below r)) (at size r))))]
    [token (tensor [r rows word report-words]
             (select (= word 0) (at token r) (select (= word 1) (at equals r) (at apart r))))]))

; ---- integer and float arithmetic by name

(defmacro +i [a b] `(arith.addi ~a ~b))
(defmacro -i [a b] `(arith.subi ~a ~b))
(defmacro *i [a b] `(arith.muli ~a ~b))
(defmacro /i [a b] `(arith.divsi ~a ~b))
(defmacro +f [a b] `(arith.addf ~a ~b))
(defmacro -f [a b] `(arith.subf ~a ~b))
(defmacro *f [a b] `(arith.mulf ~a ~b))
(defmacro /f [a b] `(arith.divf ~a ~b))
(defmacro <i [a b] `(arith.cmpi {:predicate "slt"} ~a ~b))
(defmacro <=i [a b] `(arith.cmpi {:predicate "sle"} ~a ~b))
(defmacro >i [a b] `(arith.cmpi {:predicate "sgt"} ~a ~b))
(defmacro >=i [a b] `(arith.cmpi {:predicate "sge"} ~a ~b))
(defmacro =i [a b] `(arith.cmpi {:predicate "eq"} ~a ~b))
(defmacro !=i [a b] `(arith.cmpi {:predicate "ne"} ~a ~b))

; ---- pointers

(defmacro null-ptr [] `(llvm.mlir.zero {:result !llvm.ptr}))
(defmacro null? [p] `(llvm.icmp {:predicate "eq"} ~p (llvm.mlir.zero {:result !llvm.ptr})))
(defmacro ptr-load [T p] `(llvm.load {:result ~T} ~p))
(defmacro ptr-store! [value p] `(llvm.store ~value ~p))

; p and n bytes; the type is the pointer's own
(defmacro ptr-offset [T p n]
  `(llvm.getelementptr {:result ~T :elem_type i8 :rawConstantIndices array<i32: -2147483648>} ~p ~n))

; p and n elements of type T
(defmacro ptr-at [T p n]
  `(llvm.getelementptr {:result !llvm.ptr :elem_type ~T :rawConstantIndices array<i32: -2147483648>} ~p ~n))
