; The recurrence of "RWKV-7 Goose" (Peng et al. 2025): a matrix of each head that decays by columns, and in which what a key
; meant is replaced, as by the delta rule, to the share that the text says.
(require nn arrays algebra training)
(config inputs 4  heads 2  width 8  classes 5)
(weights (x-w [(* 6 width) inputs] {:init (normal 0.3)}) (x-b [(* 6 width)])
  (norm-w [width] {:init 1}) (norm-b [width]) (head-w [classes width] {:init (normal 0.3)}))

(defn of-length-one [x] (* x (rsqrt (+ 1e-6 (sum-along (square x) 1 true)))))
(defn step [state row]
  (let [n (dim row 0)  size (quot width heads)
        [r k v decay a key] (map (fn [x] (reshape x [(* n heads) size])) (split row (map (fn [i] width) (range 6)) 1))
        decay (exp (* -0.6065306597 (sigmoid decay)))
        key (of-length-one key)
        there (einsum [b i] state [b i j] key [b j])
        shared (* (sigmoid a) key)
        state (tensor [b (* n heads) i size j size]
                (+ (* (at v b i) (at k b j)) (- (* (at state b i j) (at decay b j)) (* (at there b i) (at shared b j)))))]
    [state (reshape (einsum [b i] state [b i j] r [b j]) [n width])]))

(entry fit [(x [length batch inputs] f32) (labels [batch] i32)]
  (let [[length n _] (shape x)  size (quot width heads)
        told (reshape (linear (reshape x [(* length n) inputs]) x-w x-b) [length n (* 6 width)])
        [_ said] (scan step (full [(* n heads) size size] 0.0 f32) told)
        [loss right] (cross-entropy (matmul-transposed (layer-norm (mean said 0) norm-w norm-b) head-w) labels classes)]
    {:loss loss :right right}))
(training fit)
