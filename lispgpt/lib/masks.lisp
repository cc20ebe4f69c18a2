; Logits of the tokens that a text may go on with, and reports on those that each text of a batch takes in its own way.
; A mask has a bit for each token, the lowest of each word first: whether it may come.
(require-dialect arith memref)
(require sampling)

; logits [batch columns], mask [batch words]
(kernel let-through [logits mask masked vocab]
  (let [b (block-id y)
        i (+ (* (block-id x) (capability subgroup-size)) (thread-id x))]
    (when (< i vocab)
      (let [word (memref.load mask b (quot i 32))
            bit (arith.andi (arith.shrui word (arith.andi (cast i i32) (: 31 i32))) (: 1 i32))]
        (memref.store (select (= bit 0) -inf (memref.load logits b i)) masked b i)))
    (when (and (>= i vocab) (< i (dim logits 1)))
      (memref.store (memref.load logits b i) masked b i))))

; -> [batch columns]; what is not a token stays as it is
(defn masked-logits [logits mask vocab]
  (let [lanes (capability subgroup-size)]
    (launch let-through [(blocks-of lanes (dim logits 1)) (dim logits 0)] [lanes]
      logits mask (output (type logits)) vocab)))

(kernel report-steered [next best sampling report]
  (let [b (block-id x)
        greedy (= (memref.load sampling b (: 1 index)) 1)]
    (when (= (thread-id x) 0)
      (store-report [(memref.load next b)
                     (select greedy (memref.load best b (: 1 index)) (: 1 i32))
                     (select greedy (memref.load best b (: 2 index)) (: 0x7f7fffff i32))]
        report b))))

; next [batch], best [batch 3], sampling [batch 8] -> [batch 3]: each token in the place of the best one, and how clearly
; it wins where it is the best; one that was drawn does
(defn steered-report [next best sampling]
  (launch report-steered [(dim next 0)] [(capability subgroup-size)]
    next best sampling (output (type best))))
