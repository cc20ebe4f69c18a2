; Contrastive decoding as one entry ("Contrastive Decoding", Li et al. 2023): of the words that a large model finds
; probable, the one that a small model finds least so for its chance.  The loop's steps read and write both models' states,
; so that a call goes on where the one before it ended.
(require nn arrays)
(config vocab 12  width 8  small 4  steps 6  least 0.1)
(weights (table [vocab width]) (h-w [width width]) (head-w [vocab width])
  (small-table [vocab small]) (small-h-w [small small]) (small-head-w [vocab small]))
(state (h [batch width]) (small-h [batch small]))

; the logarithms of the chances of what comes after `words` [n]; the state goes on
(defn after-words [words table recurrent head state]
  (do (update! state (tanh (+ (rows table words) (matmul-transposed (read-state state) recurrent))))
      (log-softmax (matmul-transposed (read-state state) head))))

(defn step [words _]
  (let [large (after-words words table h-w head-w h)
        small-logs (after-words words small-table small-h-w small-head-w small-h)
        probable (>= large (+ (max-along large 1 true) (log (tensor [one 1] least))))
        next (argmax (select probable (- large small-logs) -1e9))]
    [next next]))

(entry write [(words [batch] i32)] {:shapes [{batch 3}]}
  (let [[_ written] (scan step words steps)] {:words (transpose written [1 0])}))
