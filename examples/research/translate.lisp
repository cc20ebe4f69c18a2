; A text to another: an encoder with a bias by distance, as T5 has, and a decoder that looks at its text by cross-attention.
(require nn arrays training)
(config vocab 48  context 16  heads 2  width 16)
(weights (table [vocab width] {:init (normal 0.5)}) (distance [heads context context] {:init (normal 0.1)})
  (read-w [(* 3 width) width] {:init (normal 0.2)}) (read-out [width width] {:init (normal 0.2)})
  (read-n [width] {:init 1}) (write-n [width] {:init 1}) (look-n [width] {:init 1}) (end-n [width] {:init 1})
  (write-w [(* 3 width) width] {:init (normal 0.2)}) (write-out [width width] {:init (normal 0.2)})
  (look-q [width width] {:init (normal 0.2)}) (look-kv [(* 2 width) width] {:init (normal 0.2)})
  (look-out [width width] {:init (normal 0.2)}))

(defn parts-of [x n]
  (map (fn [i] (let [[b t _] (shape x)]
                 (reshape (slice x [0 0 (* i width)] [b t width]) [b t heads (quot width heads)])))
       (range n)))
(defn times [x w] (let [[b t c] (shape x)] (reshape (matmul-transposed (reshape x [(* b t) c]) w) [b t (dim w 0)])))
(defn normed [x w] (let [[b t c] (shape x)] (reshape (rms-norm (reshape x [(* b t) c]) w 1e-6) [b t c])))
(defn flat [x] (let [[b t h d] (shape x)] (reshape x [b t (* h d)])))
(defn words [ids] (let [[b t] (shape ids)] (reshape (rows table (reshape ids [(* b t)])) [b t width])))

(defn encoded [source mask]
  (let [[_ length] (shape source)
        x (words source)
        [q k v] (parts-of (times (normed x read-n) read-w) 3)
        bias (reshape (slice distance [0 0 0] [heads length length]) [1 heads length length])]
    (+ x (times (flat (attention-to q k v {:mask mask :bias bias :scale 1.0})) read-out))))

(entry fit [(source [batch length] i32) (mask [batch length] i32) (tokens [batch after] i32) (targets [batch after] i32)]
  (let [[n after] (shape tokens)
        known (encoded source mask)
        x (words tokens)
        [q k v] (parts-of (times (normed x write-n) write-w) 3)
        x (+ x (times (flat (attention-to q k v {:causal true})) write-out))
        [q] (parts-of (times (normed x look-n) look-q) 1)
        [k v] (parts-of (times known look-kv) 2)
        x (+ x (times (flat (attention-to q k v {:mask mask})) look-out))
        scores (matmul-transposed (reshape (normed x end-n) [(* n after) width]) table)
        [loss right] (cross-entropy scores (reshape targets [(* n after)]) vocab)]
    {:loss loss :right right}))
(training fit)
