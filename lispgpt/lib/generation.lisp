; Entries that generate, made of an entry of tokens and positions that gives logits.  `(generate logits)` is `(decoding
; logits)`, and has the runtime run what it makes (runtime/generate.py says how).
;
;   prefill       [tokens positions]             the model's logits, and `next`: the most probable tokens
;   decode-greedy [tokens positions]             the same for one position
;   decode-drawn  [tokens positions sampling]    the same with tokens drawn at random (see sampling.lisp)
;
; Where steps can follow each other without the host, a step leaves its tokens and the positions after its own in its
; inputs, and running it again decodes the next ones.
(require-dialect arith gpu memref)

(def ahead (= (capability runs-ahead) 1))
(when ahead (require sampling))

; How many of the columns of logits [batch columns] are tokens.
(defn vocabulary [logits]
  (let [[rows columns] (if (= (rank logits) 2) (shape logits) [0 0])
        vocab (configured "vocab" columns)]
    (if (not (= rows (batch)))
      (error (str "`generate` wants one row of logits for each sequence, and got " (type logits)))
      (if (or (< vocab 1) (< columns vocab))
        (error (str "vocab is " vocab ", and the entry gives " columns " logits"))
        vocab))))

; A `next` that is no token (-1, or the largest i32) is for the host to see; the steps after it take token 0.
(kernel advance [next tokens positions sequences]
  (let [i (+ (* (block-id x) (capability subgroup-size)) (thread-id x))]
    (when (arith.cmpi {:predicate "ult"} i (: sequences index))
      (let [token (memref.load next i)
            known (arith.cmpi {:predicate "ult"} token (: 2147483647 i32))]
        (memref.store (select known token (: 0 i32)) tokens i)
        (memref.store (+ (memref.load positions i) (: 1 i32)) positions i)))))

; logits, and the tokens that a function of them and the size of the vocabulary chooses
(defn chosen [model tokens positions choose]
  (let [logits (first (results (model tokens positions)))]
    {:logits logits :next (choose logits (vocabulary logits))}))

; What a step leaves in its inputs.
(defn advanced [next tokens positions]
  (let [lanes (capability subgroup-size)
        sequences (batch)]
    (launch advance [(blocks-of lanes sequences)] [lanes] next (in-place tokens) (in-place positions) sequences)))

(defmacro step-of [model tokens positions choose]
  `(let [found (chosen ~model ~tokens ~positions ~choose)]
     (when ahead
       (let [[following places] (advanced (nth (results found) 1) ~tokens ~positions)]
         (update! ~tokens following)
         (update! ~positions places)))
     found))

(defn decoding [model]
  (restrict-shapes model (fn [batch positions] false))
  (entry prefill [tokens positions]
    (chosen model tokens positions best-token))
  (restrict-shapes prefill (fn [batch positions] (> positions 1)))
  (entry decode-greedy [tokens positions] {:shapes [{positions 1}]}
    (step-of model tokens positions best-token))
  (when ahead
    (entry decode-drawn [tokens positions (sampling [batch settings-words] i32)] {:shapes [{positions 1}]}
      (step-of model tokens positions
               (fn [logits vocab] (draw-token logits sampling positions vocab))))))
